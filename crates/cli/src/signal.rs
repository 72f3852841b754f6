//! Ctrl-C: the first ends the work at its next step, the second ends the program.
#![allow(unsafe_code)] // a signal handler can't be installed without

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use minfer_engine::CancelFlag;

use crate::error::INTERRUPTED;

static FLAG: OnceLock<CancelFlag> = OnceLock::new();
static ARMED: AtomicBool = AtomicBool::new(false);

/// While this lives, the first Ctrl-C sets the flag and no more.
pub(crate) struct Interruptible {
    flag: CancelFlag,
}

impl Interruptible {
    /// Begins work that asks the flag.
    pub(crate) fn begin() -> Self {
        let flag = FLAG.get_or_init(CancelFlag::new).clone();
        flag.reset();
        ARMED.store(true, Ordering::SeqCst);
        Self { flag }
    }

    /// The flag that the work asks.
    pub(crate) fn flag(&self) -> &CancelFlag {
        &self.flag
    }
}

impl Drop for Interruptible {
    fn drop(&mut self) {
        ARMED.store(false, Ordering::SeqCst);
    }
}

/// Takes over Ctrl-C. Outside of [`Interruptible`] work it ends the program at once, with the exit code of an
/// interrupted one.
pub(crate) fn install() {
    FLAG.get_or_init(CancelFlag::new);
    let handler = on_interrupt as extern "C" fn(libc::c_int);
    // SAFETY: the handler does only what a signal handler may: it loads and stores atomics and calls `_exit`.
    unsafe {
        libc::signal(libc::SIGINT, handler as libc::sighandler_t);
    }
}

extern "C" fn on_interrupt(_signal: libc::c_int) {
    let flag = FLAG.get().filter(|flag| ARMED.load(Ordering::SeqCst) && !flag.is_cancelled());
    match flag {
        Some(flag) => flag.cancel(),
        // SAFETY: `_exit` is async-signal-safe and takes any number.
        None => unsafe { libc::_exit(libc::c_int::from(INTERRUPTED)) },
    }
}
