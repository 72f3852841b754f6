//! How many bytes: the size ladder and where a budget comes from.

use minfer_tensor::Bytes;

/// What a device says of its memory (rule A2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceMemory {
    /// The driver's answer.
    Reported {
        /// Bytes that are free now.
        free: Bytes,
        /// Bytes in all.
        total: Bytes,
    },
    /// The driver was asked and failed; not the same as no memory.
    QueryFailed {
        /// The driver's own name of the error.
        name: String,
    },
    /// There is no device, or none that has memory of its own to account for.
    NoDevice,
}

/// How much a backend may be charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// No limit was set.
    Unbounded,
    /// At most this much.
    Limited(Bytes),
    /// At most this much beside mapped weights, whose pages the system may take back (rule B5, `--allow-paging`).
    LimitedAnonymous(Bytes),
    /// The device was asked and failed: nothing is refused for want of budget, everything is charged and reported.
    Unknown,
}

impl DeviceMemory {
    /// A driver's answer. One that knows of no memory at all doesn't know: that isn't a budget of nothing.
    pub fn from_driver(free: Bytes, total: Bytes) -> Self {
        match total {
            Bytes::ZERO => Self::QueryFailed { name: "the driver reports 0 bytes in all".to_owned() },
            total => Self::Reported { free: free.min(total), total },
        }
    }
}

impl Budget {
    /// The limit, if there is one.
    pub fn limit(self) -> Option<Bytes> {
        match self {
            Budget::Limited(bytes) | Budget::LimitedAnonymous(bytes) => Some(bytes),
            Budget::Unbounded | Budget::Unknown => None,
        }
    }

    /// What the limit leaves of a total of which `mapped` bytes are pages of a file; 0 if it is exceeded.
    pub fn headroom(self, total: Bytes, mapped: Bytes) -> Option<Bytes> {
        Some(self.limit()?.saturating_sub(total.saturating_sub(self.exempt(mapped))))
    }

    /// The part of `mapped` bytes that the limit doesn't count.
    pub(crate) fn exempt(self, mapped: Bytes) -> Bytes {
        if matches!(self, Budget::LimitedAnonymous(_)) { mapped } else { Bytes::ZERO }
    }

    /// The same limit with mapped weights exempt.
    #[must_use]
    pub fn allow_paging(self) -> Self {
        match self {
            Budget::Limited(bytes) => Budget::LimitedAnonymous(bytes),
            other => other,
        }
    }
}

/// A budget, and what a person should be told about how it came about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetDecision {
    /// The budget.
    pub budget: Budget,
    /// A line to print once per process.
    pub note: Option<String>,
}

/// The table of rule A2: an explicit number wins; three quarters of what is free otherwise. A failed query is an unknown
/// budget and never 0.
pub fn budget_decision(explicit: Option<Bytes>, memory: &DeviceMemory) -> BudgetDecision {
    let (budget, note) = match (explicit, memory) {
        (Some(bytes), _) => (Budget::Limited(bytes), None),
        (None, DeviceMemory::Reported { free, .. }) => (Budget::Limited(three_quarters(*free)), None),
        (None, DeviceMemory::QueryFailed { name }) => {
            let note =
                format!("the device's free memory is unknown ({name}); set a budget to have it checked");
            (Budget::Unknown, Some(note))
        }
        (None, DeviceMemory::NoDevice) => (Budget::Unbounded, None),
    };
    BudgetDecision { budget, note }
}

/// Rounded down, without the overflow of `3 * bytes`.
fn three_quarters(bytes: Bytes) -> Bytes {
    bytes.saturating_sub(Bytes::new(bytes.get().div_ceil(4)))
}

/// Smallest class.
const MIN_CLASS: u64 = 256;
/// Step of the ladder above this size, and its last power of two.
const CLASS_STEP: u64 = 16 << 10;

/// The class of a request (rule A4): powers of two from 256 bytes to 16 KiB, then multiples of 16 KiB. `None` on overflow.
pub fn class_size(bytes: Bytes) -> Option<Bytes> {
    if bytes.get() <= CLASS_STEP {
        return Some(Bytes::new(bytes.get().next_power_of_two().max(MIN_CLASS)));
    }
    bytes.checked_align_up(Bytes::new(CLASS_STEP))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a4_a_class_holds_its_request_and_is_its_own_class(bytes in 0..u64::MAX - CLASS_STEP, more: u16) {
            let class = class_size(Bytes::new(bytes)).unwrap();
            prop_assert!(class.get() >= bytes);
            prop_assert_eq!(class_size(class), Some(class));
            prop_assert!(class.get() - bytes < CLASS_STEP.min(bytes.max(MIN_CLASS)));
            let larger = class_size(Bytes::new(bytes.saturating_add(more.into())));
            prop_assert!(larger.is_none_or(|larger| larger >= class));
        }
    }

    fn reported(free: u64) -> DeviceMemory {
        DeviceMemory::Reported { free: Bytes::new(free), total: Bytes::new(free) }
    }

    #[test]
    fn a4_classes_are_powers_of_two_then_steps() {
        let cases = [(0, 256), (1, 256), (256, 256), (257, 512), (16_384, 16_384), (16_385, 32_768)];
        for (bytes, class) in cases {
            assert_eq!(class_size(Bytes::new(bytes)), Some(Bytes::new(class)), "{bytes}");
        }
        assert_eq!(class_size(Bytes::new(49_152)), Some(Bytes::new(49_152)));
        assert_eq!(class_size(Bytes::MAX), None);
    }

    #[test]
    fn s2_a_driver_that_knows_of_no_memory_is_unknown() {
        let unknown = DeviceMemory::from_driver(Bytes::ZERO, Bytes::ZERO);
        assert!(matches!(unknown, DeviceMemory::QueryFailed { .. }));
        assert_eq!(budget_decision(None, &unknown).budget, Budget::Unknown);
        let full = DeviceMemory::from_driver(Bytes::ZERO, Bytes::new(8));
        assert_eq!(budget_decision(None, &full).budget, Budget::Limited(Bytes::ZERO));
    }

    #[test]
    fn a2_the_table_of_budgets() {
        let failed = DeviceMemory::QueryFailed { name: "CUDA_ERROR_NOT_PERMITTED".to_owned() };
        let given = Some(Bytes::new(5));
        for memory in [reported(100), failed.clone(), DeviceMemory::NoDevice] {
            let decision = budget_decision(given, &memory);
            assert_eq!(decision, BudgetDecision { budget: Budget::Limited(Bytes::new(5)), note: None });
        }
        for (free, budget) in [(0, 0), (1, 0), (4, 3), (7, 5), (u64::MAX, u64::MAX / 4 * 3 + 2)] {
            let expected = Budget::Limited(Bytes::new(budget));
            assert_eq!(budget_decision(None, &reported(free)).budget, expected, "{free}");
        }
        assert_eq!(budget_decision(None, &DeviceMemory::NoDevice).budget, Budget::Unbounded);
        let unknown = budget_decision(None, &failed);
        assert_eq!(unknown.budget, Budget::Unknown);
        assert!(unknown.note.is_some_and(|n| n.contains("CUDA_ERROR_NOT_PERMITTED")));
    }
}
