//! Surviving reads of mapped pages that no longer exist.
//!
//! To read a mapped page beyond the end of its file raises `SIGBUS`, which by default ends the process. The
//! handler here looks the address up among the registered mappings, puts zeros where the file was, marks the
//! mapping as damaged and lets the read go on. Every other `SIGBUS` goes to whoever handled it before.
// A signal handler and the mapping of pages at fixed addresses are `unsafe` by nature.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use libc::{c_int, c_void, siginfo_t};

/// A registered mapping. Never freed: a handler may look at it at any time. Some 40 bytes a load.
#[derive(Debug)]
struct Region {
    start: usize,
    end: usize,
    live: AtomicBool,
    damaged: AtomicBool,
    next: *const Region,
}

/// The newest region; the others follow by `next`. Only ever pushed to, so it is read without a lock.
static REGIONS: AtomicPtr<Region> = AtomicPtr::new(ptr::null_mut());

/// What was installed before, and the size of a page; set before the first region.
static BEFORE: OnceLock<Before> = OnceLock::new();

struct Before {
    action: libc::sigaction,
    page: usize,
}

/// Keeps a mapping registered.
#[derive(Debug)]
pub(crate) struct Guard(&'static Region);

// SAFETY: what a region shares is atomic; `next` points to a region that is never freed or changed.
unsafe impl Send for Guard {}
// SAFETY: as for `Send`.
unsafe impl Sync for Guard {}

impl Guard {
    /// Registers the memory of a mapping, which must outlive the guard.
    pub(crate) fn new(map: &[u8]) -> io::Result<Self> {
        install()?;
        let start = map.as_ptr() as usize;
        let region: &'static mut Region = Box::leak(Box::new(Region {
            start,
            end: start + map.len(),
            live: AtomicBool::new(true),
            damaged: AtomicBool::new(false),
            next: REGIONS.load(Ordering::Acquire),
        }));
        loop {
            let head = region.next.cast_mut();
            match REGIONS.compare_exchange(head, region, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(Self(region)),
                Err(newer) => region.next = newer,
            }
        }
    }

    /// Whether a read found no page.
    pub(crate) fn damaged(&self) -> bool {
        self.0.damaged.load(Ordering::Acquire)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.live.store(false, Ordering::Release);
    }
}

/// Installs the handler, once a process.
fn install() -> io::Result<()> {
    static INSTALLED: OnceLock<Option<c_int>> = OnceLock::new();
    match INSTALLED.get_or_init(|| try_install().err()) {
        None => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(*errno)),
    }
}

fn try_install() -> Result<(), c_int> {
    let last_error = || io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL);
    // SAFETY: asks for a number.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).map_err(|_| last_error())?;
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null new action only queries; the old one is written to valid memory.
    if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), action.as_mut_ptr()) } != 0 {
        return Err(last_error());
    }
    // SAFETY: zeroed, then written by the successful call.
    BEFORE.get_or_init(|| Before { action: unsafe { action.assume_init() }, page });
    // SAFETY: all zeros is a valid `sigaction`: no flags and an empty mask.
    let mut ours = unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() };
    ours.sa_sigaction = on_sigbus as *const () as usize;
    // On the alternative stack, where a thread has one: the handler before ours may be that of Rust's
    // runtime, which is called for an overflown stack.
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the handler has the signature that `SA_SIGINFO` wants, and `ours` is initialized.
    if unsafe { libc::sigaction(libc::SIGBUS, &raw const ours, ptr::null_mut()) } != 0 {
        return Err(last_error());
    }
    Ok(())
}

/// The handler: atomics and system calls only, no lock, no allocation.
extern "C" fn on_sigbus(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let Some(before) = BEFORE.get() else { return };
    // SAFETY: the kernel passes valid information to a handler with `SA_SIGINFO`.
    let address = unsafe { (*info).si_addr() } as usize;
    if !(is_fault(info) && repair(address, before.page)) {
        chain(&before.action, signal, info, context);
    }
}

/// Whether the signal comes from a memory access and not from `kill`.
fn is_fault(info: *const siginfo_t) -> bool {
    // SAFETY: as in `on_sigbus`.
    unsafe { (*info).si_code > 0 }
}

/// Replaces the mapping from `address` to its end by zeros; false where it is none of ours.
fn repair(address: usize, page: usize) -> bool {
    let mut next = REGIONS.load(Ordering::Acquire).cast_const();
    // SAFETY: regions are never freed, and `next` is null or one of them.
    while let Some(region) = unsafe { next.as_ref() } {
        if (region.start..region.end).contains(&address) && region.live.load(Ordering::Acquire) {
            // Set first: whoever reads the zeros and then asks must be told.
            region.damaged.store(true, Ordering::Release);
            let start = address & !(page - 1);
            return map_zeros(start, region.end - start);
        }
        next = region.next;
    }
    false
}

/// Maps zeros over what a file no longer backs. All of the rest: the result is void in any case, and a
/// fault for every page of a large file would take long.
fn map_zeros(start: usize, len: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let saved = errno();
    // SAFETY: the range is page-aligned and within a live mapping of ours, whose owner only reads it.
    let mapped = unsafe { libc::mmap(start as *mut c_void, len, libc::PROT_READ, flags, -1, 0) };
    set_errno(saved);
    mapped != libc::MAP_FAILED
}

/// Hands the signal to the handler that was there before.
fn chain(before: &libc::sigaction, signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    match before.sa_sigaction {
        libc::SIG_IGN if !is_fault(info) => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: all zeros is the default action. It takes effect when this handler returns: the faulting
            // access is repeated, and a signal from elsewhere is pending again.
            unsafe {
                let default = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
                libc::sigaction(signal, &raw const default, ptr::null_mut());
                libc::raise(signal);
            }
        }
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
            type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);
            // SAFETY: the flag says that the handler has this signature.
            let handler = unsafe { std::mem::transmute::<usize, Handler>(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: without the flag a handler takes the number of the signal.
            let handler = unsafe { std::mem::transmute::<usize, extern "C" fn(c_int)>(handler) };
            handler(signal);
        }
    }
}

fn errno() -> c_int {
    // SAFETY: the thread's own variable.
    unsafe { *errno_place() }
}

fn set_errno(value: c_int) {
    // SAFETY: the thread's own variable.
    unsafe { *errno_place() = value }
}

#[cfg(target_os = "linux")]
use libc::__errno_location as errno_place;

#[cfg(any(target_os = "macos", target_os = "ios", target_os = "freebsd"))]
use libc::__error as errno_place;

#[cfg(any(target_os = "android", target_os = "openbsd", target_os = "netbsd"))]
use libc::__errno as errno_place;
