//! How many blocks fit a budget (rules O7, O8).

use minfer_tensor::Bytes;

use super::{OffloadError, OffloadPlan};
use crate::allocplan::{Budget, DeviceMemory, budget_decision};

/// The bytes that each block adds to a device, one entry a block: what a plan with that block holds beyond one without.
///
/// Counted through [`OffloadPlan::allows_weight`] itself, so tensors outside any block, which follow a full offload only, are part of the
/// last entry. `weights` are names and the bytes that the device is charged for them. `None` if a sum exceeds 64 bits.
pub fn per_block_bytes<'a>(
    n_layers: u32,
    weights: impl IntoIterator<Item = (&'a str, Bytes)>,
) -> Option<Vec<Bytes>> {
    let mut blocks = vec![Bytes::ZERO; n_layers as usize];
    let plans: Vec<_> = (1..=n_layers).map(|gpu_layers| OffloadPlan { gpu_layers, n_layers }).collect();
    for (name, bytes) in weights {
        // What a plan allows, a larger one allows too.
        let first = plans.partition_point(|plan| !plan.allows_weight(name));
        if let Some(block) = blocks.get_mut(first) {
            *block = block.checked_add(bytes)?;
        }
    }
    blocks.iter().try_fold(Bytes::ZERO, |sum, &block| sum.checked_add(block))?;
    Some(blocks)
}

/// The largest prefix of blocks whose bytes fit `budget` less `reserve`. Equality fits, and the first block that doesn't
/// ends it: a gap would buy two more crossings and nothing else.
pub fn fit_blocks(budget: Bytes, per_block: &[Bytes], reserve: Bytes) -> u32 {
    let room = budget.saturating_sub(reserve);
    let sums = per_block.iter().scan(Some(Bytes::ZERO), |sum, &block| {
        *sum = sum.and_then(|sum| sum.checked_add(block));
        *sum
    });
    let n = sums.take_while(|&sum| sum <= room).count();
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// The largest number of blocks up to `most` for which `fits`, where a larger number never fits if a smaller one doesn't.
pub fn largest_prefix(most: u32, mut fits: impl FnMut(u32) -> bool) -> Option<u32> {
    if fits(most) {
        return Some(most);
    }
    // `good` is one more than a number that fits, or 0 where none is known.
    let (mut good, mut bad) = (0, most);
    while good < bad {
        let middle = good.midpoint(bad);
        if fits(middle) { good = middle + 1 } else { bad = middle }
    }
    good.checked_sub(1)
}

/// The budget that the automatic fit and the gate both talk about: `None` where there is no device and no number was given.
///
/// # Errors
/// If the device's memory is unknown and no budget was given: that isn't a budget of nothing (rule O8).
pub fn weight_budget(explicit: Option<Bytes>, memory: &DeviceMemory) -> Result<Option<Bytes>, OffloadError> {
    match (budget_decision(explicit, memory).budget, memory) {
        (Budget::Unknown, DeviceMemory::QueryFailed { name }) => {
            Err(OffloadError::UnknownMemory { name: name.clone() })
        }
        (budget, _) => Ok(budget.limit()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(numbers: &[u64]) -> Vec<Bytes> {
        numbers.iter().copied().map(Bytes::new).collect()
    }

    #[test]
    fn o7_equality_fits_and_the_first_miss_ends_it() {
        let blocks = bytes(&[10, 20, 5]);
        let fit = |budget, reserve| fit_blocks(Bytes::new(budget), &blocks, Bytes::new(reserve));
        for (budget, reserve, n) in [
            (0, 0, 0),
            (9, 0, 0),
            (10, 0, 1),
            (29, 0, 1),
            (30, 0, 2),
            (35, 0, 3),
            (40, 5, 3),
            (40, 6, 2),
            (5, 9, 0),
        ] {
            assert_eq!(fit(budget, reserve), n, "{budget} less {reserve}");
        }
        // The last block alone would fit, but a prefix has no gaps.
        assert_eq!(fit_blocks(Bytes::new(15), &bytes(&[10, 20, 5]), Bytes::ZERO), 1);
        assert_eq!(
            fit_blocks(Bytes::MAX, &bytes(&[u64::MAX, 1]), Bytes::ZERO),
            1,
            "a sum beyond 64 bits doesn't fit"
        );
        assert_eq!(fit_blocks(Bytes::MAX, &[], Bytes::ZERO), 0);
    }

    #[test]
    fn o7_what_a_full_offload_adds_counts_in_the_last_block() {
        let weights = [
            ("token_embd.weight", 100),
            ("blk.0.attn_q.weight", 1),
            ("blk.1.attn_q.weight", 2),
            ("blk.1.ffn_gu", 4),
            ("output_norm.weight", 1000),
            ("blk.9.stray.weight", 7),
        ];
        let weights = weights.map(|(name, n)| (name, Bytes::new(n)));
        assert_eq!(per_block_bytes(2, weights), Some(bytes(&[1, 1106])));
        assert_eq!(per_block_bytes(0, weights), Some(vec![]));
    }

    #[test]
    fn s11_blocks_that_add_up_beyond_64_bits_have_no_sum() {
        let weights = [("blk.0.a", Bytes::MAX), ("blk.1.a", Bytes::new(1))];
        assert_eq!(per_block_bytes(2, weights), None);
        assert_eq!(per_block_bytes(1, [("blk.0.a", Bytes::MAX), ("blk.0.b", Bytes::new(1))]), None);
    }

    #[test]
    fn o8_a_failed_query_is_not_zero_bytes() {
        let failed = DeviceMemory::QueryFailed { name: "ERROR_DEVICE_BUSY".to_owned() };
        let error = weight_budget(None, &failed).unwrap_err();
        assert!(error.to_string().contains("ERROR_DEVICE_BUSY"));
        assert_eq!(weight_budget(Some(Bytes::new(7)), &failed), Ok(Some(Bytes::new(7))));
        assert_eq!(weight_budget(None, &DeviceMemory::NoDevice), Ok(None));
        let reported = DeviceMemory::Reported { free: Bytes::new(8), total: Bytes::new(9) };
        assert_eq!(weight_budget(None, &reported), Ok(Some(Bytes::new(6))));
    }

    proptest! {
        #[test]
        fn o7_the_fit_grows_with_the_budget_and_never_exceeds_it(
            blocks in prop::collection::vec(0u64..1000, 0..12), budget in 0u64..8000, more in 0u64..500, reserve in 0u64..500,
        ) {
            let blocks = bytes(&blocks);
            let fit = |budget| fit_blocks(Bytes::new(budget), &blocks, Bytes::new(reserve));
            let n = fit(budget);
            let held: Bytes = blocks[..n as usize].iter().copied().sum();
            prop_assert!(n == 0 || held.get() + reserve <= budget);
            prop_assert!(fit(budget + more) >= n);
        }

        #[test]
        fn b2_the_largest_prefix_is_found(most in 0u32..40, limit in 0u32..50) {
            let found = largest_prefix(most, |n| n < limit);
            prop_assert_eq!(found, limit.checked_sub(1).map(|n| n.min(most)));
        }
    }
}
