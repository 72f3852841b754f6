//! Keeps a driver's library from printing on standard error, where scripts look for our own errors.
#![allow(unsafe_code)] // variables can't be set without

use crate::env;

/// Mesa's layer that sorts devices for desktops asks the display server, and its library complains where there is none. The
/// layer is of no use here: the device is chosen by `--device`.
pub(crate) fn hush() {
    if env::has_display() {
        return;
    }
    // SAFETY: called at the beginning of `main`, when no other thread exists that could read the environment.
    unsafe { std::env::set_var("NODEVICE_SELECT", "1") };
}
