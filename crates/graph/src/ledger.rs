//! One ledger for every byte that a backend holds (rule B1): reserve, then commit or release.

use minfer_tensor::Bytes;
use thiserror::Error;

use crate::allocplan::Budget;
use crate::backend::{BackendId, WeightCharge};

/// Whether nothing is charged and nothing refused: what `cargo xtask ledger` compares with, and no build for use.
const NO_OP: bool = cfg!(minfer_no_ledger);

/// What a byte is charged as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
    /// Weights that are pages of a file, used in place.
    MappedWeights,
    /// Weights in memory of the backend.
    AnonymousWeights,
    /// Keys and values.
    Kv,
    /// Activations and inputs, at their class.
    Pool,
    /// Values that cross from another backend, exact (rule A11).
    Staging,
    /// Working memory of kernels.
    Scratch,
    /// Copies on the host between backends.
    Host,
}

impl Category {
    /// Every category, in the order of reports.
    pub const ALL: [Self; 7] = [
        Self::MappedWeights,
        Self::AnonymousWeights,
        Self::Kv,
        Self::Pool,
        Self::Staging,
        Self::Scratch,
        Self::Host,
    ];

    /// In words, for messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MappedWeights => "mapped weights",
            Self::AnonymousWeights => "weights",
            Self::Kv => "keys and values",
            Self::Pool => "activations",
            Self::Staging => "staging",
            Self::Scratch => "scratch",
            Self::Host => "the session's own data",
        }
    }
}

/// Bytes by category: of a request, of an account, of a plan. Equal charges are equal to the byte (rule B4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charges([Bytes; Category::ALL.len()]);

impl Charges {
    /// `bytes` of one category.
    pub fn of(category: Category, bytes: Bytes) -> Self {
        let mut charges = Self::default();
        charges.0[category as usize] = bytes;
        charges
    }

    /// Bytes of a category.
    pub fn get(&self, category: Category) -> Bytes {
        self.0[category as usize]
    }

    /// The sum of each category, `None` on overflow.
    pub fn checked_add(mut self, other: Self) -> Option<Self> {
        for (mine, more) in self.0.iter_mut().zip(other.0) {
            *mine = mine.checked_add(more)?;
        }
        Some(self)
    }

    /// Mapped and anonymous weights; saturates.
    pub fn weights(&self) -> Bytes {
        self.get(Category::MappedWeights).saturating_add(self.get(Category::AnonymousWeights))
    }

    /// Everything but weights; saturates.
    pub fn pooled(&self) -> Bytes {
        let weights = [Category::MappedWeights, Category::AnonymousWeights];
        Category::ALL.into_iter().filter(|c| !weights.contains(c)).map(|c| self.get(c)).sum()
    }

    /// All categories; saturates.
    pub fn total(&self) -> Bytes {
        self.weights().saturating_add(self.pooled())
    }

    /// The name of the only category that isn't zero.
    fn what(&self) -> &'static str {
        let mut named = Category::ALL.into_iter().filter(|&category| self.get(category) > Bytes::ZERO);
        match (named.next(), named.next()) {
            (Some(category), None) => category.name(),
            _ => "memory",
        }
    }

    fn minus(mut self, other: Self) -> Self {
        for (mine, less) in self.0.iter_mut().zip(other.0) {
            debug_assert!(*mine >= less, "released more than was charged");
            *mine = mine.saturating_sub(less);
        }
        self
    }
}

impl From<WeightCharge> for Charges {
    fn from(charge: WeightCharge) -> Self {
        let mut charges = Self::of(Category::MappedWeights, charge.mapped);
        charges.0[Category::AnonymousWeights as usize] = charge.anonymous;
        charges
    }
}

/// A request that the budget doesn't hold (rule A1). Nothing has changed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "{backend}: {request} for {what}, on top of {weights} of weights and {pooled} of everything else, exceed the budget \
     of {budget}"
)]
pub struct BudgetExceeded {
    /// Backend name.
    pub backend: String,
    /// Bytes of weights that are charged.
    pub weights: Bytes,
    /// Bytes of everything else that is charged.
    pub pooled: Bytes,
    /// Bytes asked for, at their class.
    pub request: Bytes,
    /// What they are for.
    pub what: &'static str,
    /// The budget.
    pub budget: Bytes,
}

#[derive(Debug)]
struct Account {
    name: String,
    budget: Budget,
    charged: Charges,
}

/// The accounts of all backends.
#[derive(Debug)]
pub struct Ledger {
    accounts: Vec<Account>,
}

impl Ledger {
    /// An empty account for each backend: its name and its budget.
    pub fn new(accounts: impl IntoIterator<Item = (String, Budget)>) -> Self {
        let open = |(name, budget)| Account { name, budget, charged: Charges::default() };
        Self { accounts: accounts.into_iter().map(open).collect() }
    }

    /// Charges `request` until the reservation is dropped, or for good once it is committed.
    ///
    /// Fails if the total would exceed the budget; without a budget, if it exceeds 64 bits.
    pub fn reserve(
        &mut self,
        backend: BackendId,
        request: Charges,
    ) -> Result<Reservation<'_>, BudgetExceeded> {
        let account = &mut self.accounts[backend.index()];
        if NO_OP {
            let before = account.charged;
            return Ok(Reservation { account, before, committed: true });
        }
        let limit = account.budget.limit().unwrap_or(Bytes::MAX);
        let within = |after: &Charges| {
            let exempt = account.budget.exempt(after.get(Category::MappedWeights));
            exact_total(after) - u128::from(exempt.get()) <= limit.get().into()
        };
        let after = account.charged.checked_add(request).filter(within);
        let Some(after) = after else {
            return Err(BudgetExceeded {
                backend: account.name.clone(),
                weights: account.charged.weights(),
                pooled: account.charged.pooled(),
                request: request.total(),
                what: request.what(),
                budget: limit,
            });
        };
        let before = std::mem::replace(&mut account.charged, after);
        Ok(Reservation { account, before, committed: false })
    }

    /// Takes back what was committed.
    pub fn release(&mut self, backend: BackendId, charges: Charges) {
        if NO_OP {
            return;
        }
        let account = &mut self.accounts[backend.index()];
        account.charged = account.charged.minus(charges);
    }

    /// What a backend is charged.
    pub fn charged(&self, backend: BackendId) -> Charges {
        self.accounts[backend.index()].charged
    }

    /// What a backend may be charged.
    pub fn budget(&self, backend: BackendId) -> Budget {
        self.accounts[backend.index()].budget
    }

    /// Replaces a budget. What is charged already stays charged.
    pub fn set_budget(&mut self, backend: BackendId, budget: Budget) {
        self.accounts[backend.index()].budget = budget;
    }
}

/// Seven 64-bit numbers can't overflow 128 bits.
fn exact_total(charges: &Charges) -> u128 {
    charges.0.iter().map(|b| u128::from(b.get())).sum()
}

/// Bytes that are charged but not handed out yet. Dropping it takes the charge back.
#[derive(Debug)]
#[must_use = "dropping a reservation releases it"]
pub struct Reservation<'a> {
    account: &'a mut Account,
    before: Charges,
    committed: bool,
}

impl Reservation<'_> {
    /// The memory was handed out: the charge stays.
    pub fn commit(mut self) {
        self.committed = true;
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if !self.committed {
            self.account.charged = self.before;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPU: fn() -> BackendId = || BackendId::new(0);

    fn ledger(budget: Budget) -> Ledger {
        Ledger::new([("cpu".to_owned(), budget)])
    }

    fn charge(ledger: &mut Ledger, category: Category, bytes: u64) -> Result<(), BudgetExceeded> {
        ledger.reserve(CPU(), Charges::of(category, Bytes::new(bytes))).map(Reservation::commit)
    }

    #[test]
    fn b1_a_dropped_reservation_leaves_no_trace() {
        let mut books = ledger(Budget::Limited(Bytes::new(10)));
        drop(books.reserve(CPU(), Charges::of(Category::Kv, Bytes::new(10))).unwrap());
        assert_eq!(books.charged(CPU()), Charges::default());
        charge(&mut books, Category::Kv, 10).unwrap();
        assert!(charge(&mut books, Category::Host, 1).is_err());
        books.release(CPU(), Charges::of(Category::Kv, Bytes::new(4)));
        charge(&mut books, Category::Host, 4).unwrap();
    }

    #[test]
    fn b1_a_budget_of_one_byte_refuses_in_every_category() {
        for category in Category::ALL {
            let mut books = ledger(Budget::Limited(Bytes::new(1)));
            assert!(charge(&mut books, category, 2).is_err(), "{category:?}");
            assert_eq!(books.charged(CPU()), Charges::default());
            charge(&mut books, category, 1).unwrap();
        }
    }

    #[test]
    fn b5_pages_of_a_file_are_exempt_where_paging_is_allowed() {
        let mut books = ledger(Budget::Limited(Bytes::new(10)).allow_paging());
        charge(&mut books, Category::MappedWeights, 1000).unwrap();
        charge(&mut books, Category::AnonymousWeights, 4).unwrap();
        assert!(charge(&mut books, Category::Kv, 7).is_err());
        charge(&mut books, Category::Kv, 6).unwrap();
        let (total, mapped) = (Bytes::new(1010), Bytes::new(1000));
        assert_eq!(books.budget(CPU()).headroom(total, mapped), Some(Bytes::ZERO));
        assert_eq!(Budget::Limited(Bytes::new(1011)).headroom(total, mapped), Some(Bytes::new(1)));
    }

    #[test]
    fn a1_the_error_names_four_numbers_that_do_not_round_to_zero() {
        let mut books = ledger(Budget::Limited(Bytes::new(4095)));
        charge(&mut books, Category::AnonymousWeights, 1000).unwrap();
        charge(&mut books, Category::Kv, 2000).unwrap();
        let error = charge(&mut books, Category::Pool, 4096).unwrap_err();
        let numbers = [error.weights, error.pooled, error.request, error.budget].map(Bytes::get);
        assert_eq!(numbers, [1000, 2000, 4096, 4095]);
        assert_eq!(
            error.to_string(),
            "cpu: 0.003906 MiB for activations, on top of 0.000954 MiB of weights and 0.001907 MiB of everything else, \
             exceed the budget of 0.003905 MiB"
        );
    }

    #[test]
    fn b1_sums_beyond_64_bits_are_refused() {
        let mut books = ledger(Budget::Unbounded);
        charge(&mut books, Category::Kv, u64::MAX).unwrap();
        assert!(charge(&mut books, Category::Kv, 1).is_err());
        assert!(charge(&mut books, Category::Pool, 1).is_err());
        let mut full = ledger(Budget::Limited(Bytes::MAX));
        charge(&mut full, Category::Kv, u64::MAX).unwrap();
        assert!(charge(&mut full, Category::Pool, 1).is_err());
    }

    #[test]
    fn a2_an_unknown_budget_charges_and_refuses_nothing() {
        let mut books = ledger(Budget::Unknown);
        charge(&mut books, Category::AnonymousWeights, 1 << 40).unwrap();
        assert_eq!(books.charged(CPU()).weights(), Bytes::new(1 << 40));
    }
}
