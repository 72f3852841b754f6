//! Damaged bytes: an error or a valid index, never a panic, never memory out of proportion.
#![allow(clippy::unwrap_used, reason = "helpers of tests unwrap as tests do")]
// A counting allocator is `unsafe` to implement.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use minfer_gguf::{Index, OwnedValue, Writer};
use minfer_tensor::{DType, Shape};
use proptest::prelude::*;

/// Counts what the current thread holds, and the most it held.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    HELD.set(HELD.get() + bytes);
    PEAK.set(PEAK.get().max(HELD.get()));
}

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller keeps the contract of `dealloc`, and `pointer` is from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Reads the bytes, looks at everything in the index, and checks what that took.
fn read(bytes: Vec<u8>) -> Option<Index> {
    let limit = 32 * bytes.len() as isize + 4096;
    let before = HELD.get();
    PEAK.set(before);
    let result = Index::from_bytes(bytes);
    if let Ok(index) = &result {
        for (key, value) in index.metadata().iter() {
            assert!(index.metadata().get(key).is_some());
            let _ = (value.to_string(), OwnedValue::from(value));
            let _ = (index.metadata().strings(key), index.metadata().f32s(key), index.metadata().u64(key));
        }
        for tensor in index.tensors() {
            assert_eq!(index.tensor(&tensor.name), Some(tensor));
            assert!(tensor.range().end <= index.parts()[0].len.get());
        }
    }
    if let Err(error) = &result {
        assert!(!error.to_string().contains(char::is_control), "{error}");
    }
    let peak = PEAK.get() - before;
    assert!(peak <= limit, "{peak} bytes held at once, limit {limit}");
    result.ok()
}

fn small_file() -> Vec<u8> {
    Writer::new()
        .kv("general.architecture", "llama")
        .kv("general.alignment", 32u32)
        .kv("x.bool", true)
        .kv(
            "x.nested",
            OwnedValue::Array(minfer_gguf::ValueType::Array, vec![vec![1u8].into(), vec![0.5f32].into()]),
        )
        .kv("tokens", ["a", "b", "c"].into_iter().collect::<OwnedValue>())
        .tensor("first", DType::F32, Shape::new(&[4]).unwrap(), vec![0; 16])
        .tensor("second", DType::Q4_0, Shape::new(&[32, 2]).unwrap(), vec![0; 36])
        .to_bytes()
}

#[test]
fn every_byte_of_a_header_can_be_any_byte() {
    let good = small_file();
    assert!(read(good.clone()).is_some());
    for at in 0..good.len() {
        for byte in
            [0, 1, 2, 7, 8, 9, 13, 0x1b, 0x20, 0x7f, 0x80, 0xff, good[at] ^ 1, good[at].wrapping_add(1)]
        {
            let mut bad = good.clone();
            bad[at] = byte;
            read(bad);
        }
    }
}

#[test]
fn every_number_of_a_header_can_be_huge() {
    let good = small_file();
    for at in 0..good.len() - 8 {
        for number in [u64::MAX, 1 << 63, 1 << 62, 1 << 32, u64::from(u32::MAX), good.len() as u64] {
            let mut bad = good.clone();
            bad[at..at + 8].copy_from_slice(&number.to_le_bytes());
            read(bad);
        }
    }
}

#[test]
fn a_file_of_too_many_pairs_is_refused_by_their_count() {
    let writer = (0..70_000).fold(Writer::new(), |writer, i| writer.kv(i.to_string(), true));
    let error = Index::from_bytes(writer.to_bytes()).unwrap_err();
    assert!(
        error.to_string().starts_with("the metadata key count is 70000, expected 65536 at most"),
        "{error}"
    );
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let good = small_file();
    // The last tensor's padding may be missing.
    let needed = good.len() - (36usize.next_multiple_of(32) - 36);
    for len in 0..needed {
        let error = Index::from_bytes(good[..len].to_vec()).unwrap_err();
        assert!(error.is_truncated(), "{len} bytes: {error}");
    }
    assert!(read(good[..needed].to_vec()).is_some());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_bytes_after_a_good_start(tail in prop::collection::vec(any::<u8>(), 0..400)) {
        read([b"GGUF\x03\0\0\0", tail.as_slice()].concat());
    }

    #[test]
    fn several_changes_at_once(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
    ) {
        let mut bytes = small_file();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        read(bytes);
    }

    #[test]
    fn pieces_moved_about(from in any::<prop::sample::Index>(), to in any::<prop::sample::Index>(), len in 1usize..64) {
        let mut bytes = small_file();
        let (from, to) = (from.index(bytes.len() - len), to.index(bytes.len() - len));
        bytes.copy_within(from..from + len, to);
        read(bytes);
    }
}

#[test]
fn b4_a_header_is_enough_to_plan_and_tells_what_is_missing() {
    let path = std::env::temp_dir().join(format!("minfer-cut-{}.gguf", std::process::id()));
    let good = small_file();
    let whole = Index::from_bytes(good.clone()).unwrap();
    let start = whole.parts()[0].data_start.get() as usize;
    let end = whole.tensors().iter().map(|tensor| tensor.range().end).max().unwrap() as usize;
    for len in [start, start + 1, end - 1, end] {
        std::fs::write(&path, &good[..len]).unwrap();
        let cut = Index::open_header(&path).unwrap();
        assert_eq!(cut.tensors(), whole.tensors());
        assert_eq!(cut.missing_bytes().get() as usize, end - len);
        assert_eq!(Index::open(&path).is_ok(), len == end);
    }
    for len in [0, 4, start / 2] {
        std::fs::write(&path, &good[..len]).unwrap();
        assert!(Index::open_header(&path).unwrap_err().is_truncated());
    }
    std::fs::remove_file(&path).unwrap();
}

/// Tensors lie side by side, so what adds up beyond 64 bits can't be told in offsets: refused even without their data.
#[test]
fn s11_tensors_that_add_up_beyond_64_bits_are_refused() {
    const HALF: u64 = 1 << 63;
    let info = |name: &str, offset: u64| {
        let mut bytes = (name.len() as u64).to_le_bytes().to_vec();
        bytes.extend(name.as_bytes());
        bytes.extend(2u32.to_le_bytes());
        bytes.extend([1u64 << 30, HALF >> 32].into_iter().flat_map(u64::to_le_bytes));
        bytes.extend(DType::F32.ggml_id().to_le_bytes());
        bytes.extend(offset.to_le_bytes());
        bytes
    };
    let path = std::env::temp_dir().join(format!("minfer-huge-{}.gguf", std::process::id()));
    let open = |tensors: &[Vec<u8>]| {
        let head = [3u64 << 32 | 0x4655_4747, tensors.len() as u64, 0];
        let mut bytes: Vec<u8> = head.into_iter().flat_map(u64::to_le_bytes).collect();
        bytes.extend(tensors.concat());
        std::fs::write(&path, bytes).unwrap();
        Index::open_header(&path)
    };
    let (first, second) = (info("blk.0.a", 0), info("blk.0.b", HALF));
    assert_eq!(open(std::slice::from_ref(&first)).unwrap().tensors()[0].nbytes().get(), HALF);
    let error = open(&[first, second]).unwrap_err().to_string();
    assert!(error.contains("blk.0.b") && error.contains("64 bits"), "{error}");
    std::fs::remove_file(&path).unwrap();
}
