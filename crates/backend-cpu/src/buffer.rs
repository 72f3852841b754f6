//! Zeroed, aligned memory whose bytes are counted where they are allocated, and resident from then on: what a plan was
//! admitted for is taken at the commit and not at the end of the context.
#![allow(unsafe_code, reason = "owns raw memory")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Alignment of every buffer; those of at least [`HUGE`] bytes are aligned to that on Linux.
pub(crate) const ALIGN: usize = 64;
/// A huge page: streaming from ordinary pages costs a quarter of the bandwidth.
const HUGE: usize = 2 << 20;

/// Bytes that are allocated now, shared by all buffers of a backend.
#[derive(Clone, Debug, Default)]
pub struct ByteCounter(Arc<AtomicUsize>);

impl ByteCounter {
    /// Bytes of all living buffers.
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// The system has no memory for a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the system refused {bytes} bytes of memory ({allocated} are allocated); use a smaller model, context or batch"
)]
pub struct AllocError {
    /// Bytes asked for.
    pub bytes: usize,
    /// Bytes that the backend holds already.
    pub allocated: usize,
}

/// Owned memory, zeroed at first, resident, and aligned to at least 64 bytes.
#[derive(Debug)]
pub struct AlignedBuf {
    memory: Option<Memory>,
    len: usize,
    counter: ByteCounter,
}

impl AlignedBuf {
    /// Allocates `len` bytes and adds them to `counter` until the buffer is dropped.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn zeroed(len: usize, counter: &ByteCounter) -> Result<Self, AllocError> {
        let mut buffer = Self::reserved(len, counter)?;
        match populate(buffer.as_mut_slice()) {
            true => Ok(buffer),
            false => Err(AllocError { bytes: len, allocated: counter.bytes() - len }),
        }
    }

    /// The same before it is resident: whoever fills it calls [`populate`] for each part, on as many threads as it has.
    ///
    /// # Errors
    /// If the system refuses the addresses.
    pub(crate) fn reserved(len: usize, counter: &ByteCounter) -> Result<Self, AllocError> {
        let memory = match len {
            0 => None,
            _ => Some(Memory::new(len).ok_or(AllocError { bytes: len, allocated: counter.bytes() })?),
        };
        counter.0.fetch_add(len, Ordering::Relaxed);
        Ok(Self { memory, len, counter: counter.clone() })
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first byte.
    pub fn as_ptr(&self) -> *const u8 {
        self.pointer().as_ptr()
    }

    /// The first byte, for writing.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.pointer().as_ptr()
    }

    /// All bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the memory has `len` initialised bytes and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len) }
    }

    /// All bytes, for writing.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr(), self.len) }
    }

    fn pointer(&self) -> NonNull<u8> {
        match &self.memory {
            Some(memory) => memory.at,
            None => NonNull::<Line>::dangling().cast(),
        }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        self.counter.0.fetch_sub(self.len, Ordering::Relaxed);
    }
}

/// Gives an empty buffer an aligned address.
#[repr(align(64))]
struct Line;
const _: () = assert!(align_of::<Line>() == ALIGN);

/// Memory from the allocator, or from the kernel if it is large.
#[derive(Debug)]
struct Memory {
    at: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory is owned, and reached only through the borrow rules of `AlignedBuf`.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// `len` is not 0.
    fn new(len: usize) -> Option<Self> {
        let layout = Layout::from_size_align(len, ALIGN).ok()?;
        let at = if mapped(len) {
            map_huge(len)?
        } else {
            // SAFETY: the size is not 0.
            NonNull::new(unsafe { alloc_zeroed(layout) })?
        };
        Some(Self { at, layout })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if mapped(self.layout.size()) {
            unmap(self.at.as_ptr(), self.layout.size().next_multiple_of(PAGE));
        } else {
            // SAFETY: it came from the allocator with this layout.
            unsafe { dealloc(self.at.as_ptr(), self.layout) };
        }
    }
}

/// Whether a buffer of this size is mapped.
fn mapped(len: usize) -> bool {
    cfg!(all(target_os = "linux", not(miri))) && len >= HUGE
}

/// Maps zeroed pages, aligned to a huge page and advised to be some.
#[cfg(target_os = "linux")]
fn map_huge(len: usize) -> Option<NonNull<u8>> {
    let used = len.checked_next_multiple_of(PAGE)?;
    let reserve = used.checked_add(HUGE)?;
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new private mapping touches no existing memory.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), reserve, access, kind, -1, 0) };
    if start == libc::MAP_FAILED {
        return None;
    }
    let start = start.cast::<u8>();
    let lead = start.align_offset(HUGE);
    let at = start.wrapping_add(lead);
    unmap(start, lead);
    unmap(at.wrapping_add(used), reserve - lead - used);
    // SAFETY: the range was just mapped; advice that the kernel refuses changes nothing.
    unsafe { libc::madvise(at.cast(), used, libc::MADV_HUGEPAGE) };
    NonNull::new(at)
}

/// Makes all pages of owned memory resident at once, which is several times faster than one by one. `false` if there isn't
/// as much memory.
pub(crate) fn populate(part: &mut [u8]) -> bool {
    populate_at_once(part).unwrap_or_else(|| {
        for byte in part.iter_mut().step_by(SMALL_PAGE) {
            // SAFETY: inside the part, which is borrowed. Volatile, or reading and writing the same would be left out.
            unsafe { std::ptr::from_mut(byte).write_volatile(*byte) };
        }
        true
    })
}

/// `None` if the system doesn't know how (Linux before 5.14), or if the bytes may not be mapped by themselves.
#[cfg(all(target_os = "linux", not(miri)))]
fn populate_at_once(part: &mut [u8]) -> Option<bool> {
    if part.len() < HUGE {
        return None;
    }
    let first = part.as_mut_ptr().map_addr(|at| at / PAGE * PAGE);
    let len = part.as_ptr().addr() + part.len() - first.addr();
    // SAFETY: so long a part is in a mapping of `map_huge`, which begins and ends at multiples of `PAGE`. Bytes stay what
    // they are.
    let failed = unsafe { libc::madvise(first.cast(), len, libc::MADV_POPULATE_WRITE) } != 0;
    let unknown = || std::io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL);
    if failed && unknown() { None } else { Some(!failed) }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn populate_at_once(_: &mut [u8]) -> Option<bool> {
    None
}

/// At least the page size of any system, so that ends can be cut off a mapping.
const PAGE: usize = 64 << 10;
/// At most the page size of any system, so that no page is left out.
const SMALL_PAGE: usize = 4 << 10;

/// Unmaps the pages of `len` bytes at `at`, which [`map_huge`] mapped.
#[cfg(target_os = "linux")]
fn unmap(at: *mut u8, len: usize) {
    if len > 0 {
        // SAFETY: the callers own this part of a mapping and don't use it again.
        unsafe { libc::munmap(at.cast(), len) };
    }
}

#[cfg(not(target_os = "linux"))]
fn map_huge(_: usize) -> Option<NonNull<u8>> {
    None
}

#[cfg(not(target_os = "linux"))]
fn unmap(_: *mut u8, _: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_zeroed_aligned_and_counted() {
        let counter = ByteCounter::default();
        let mut total = 0;
        let mut held = Vec::new();
        for len in [0, 1, 63, 64, 4097, HUGE - 1, HUGE, HUGE + 12_345] {
            let mut buffer = AlignedBuf::zeroed(len, &counter).unwrap();
            assert_eq!(buffer.as_ptr().align_offset(ALIGN), 0);
            assert!(buffer.as_slice().iter().step_by(977).all(|&b| b == 0));
            if let Some(last) = buffer.as_mut_slice().last_mut() {
                *last = 7;
            }
            total += len;
            held.push(buffer);
            assert_eq!(counter.bytes(), total);
        }
        drop(held);
        assert_eq!(counter.bytes(), 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "the interpreter ends instead of refusing")]
    fn a_refusal_is_an_error() {
        let counter = ByteCounter::default();
        for bytes in [usize::MAX, isize::MAX as usize, 1 << 60] {
            let error = AlignedBuf::zeroed(bytes, &counter).unwrap_err();
            assert_eq!(error, AllocError { bytes, allocated: 0 });
        }
        assert_eq!(counter.bytes(), 0);
    }
}
