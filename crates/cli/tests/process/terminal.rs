//! The conversation, on a terminal of our own.
#![cfg(target_os = "linux")]
#![allow(unsafe_code)] // the standard library has no pseudo-terminals

use std::ffi::CStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use super::support::*;

/// A process on a terminal.
struct Terminal {
    child: Child,
    master: File,
    seen: String,
}

impl Terminal {
    fn start(command: &mut Command) -> Self {
        let (master, slave) = open_terminal();
        let slave_fd = slave.as_raw_fd();
        command.stdin(slave.try_clone().unwrap()).stdout(slave.try_clone().unwrap());
        command.stderr(slave.try_clone().unwrap());
        // SAFETY: between fork and exec only system calls that are allowed there are made.
        unsafe {
            command.pre_exec(move || {
                if libc::setsid() < 0 || libc::ioctl(slave_fd, libc::TIOCSCTTY, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        Self { child: command.spawn().unwrap(), master, seen: String::new() }
    }

    fn say(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).unwrap();
    }

    /// Waits until the terminal shows `text` after what was waited for before; returns what came before it.
    fn wait_for(&mut self, text: &str) -> String {
        loop {
            if let Some(at) = self.seen.find(text) {
                let before = self.seen[..at].to_owned();
                self.seen.drain(..at + text.len());
                return before;
            }
            let mut bytes = [0; 4096];
            let n = self.master.read(&mut bytes).unwrap_or(0);
            assert!(n > 0, "the terminal closed before {text:?}: {}", self.seen);
            self.seen.push_str(&String::from_utf8_lossy(&bytes[..n]));
        }
    }

    fn end(mut self) -> Option<i32> {
        // A terminal that nobody reads from may keep its writer waiting.
        while self.master.read(&mut [0; 4096]).is_ok_and(|n| n > 0) {}
        self.child.wait().unwrap().code()
    }
}

/// The two ends of a new terminal.
fn open_terminal() -> (File, File) {
    // SAFETY: the calls take and return plain numbers; the name is copied before anything else can change it.
    unsafe {
        let master = libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC);
        assert!(master >= 0 && libc::grantpt(master) == 0 && libc::unlockpt(master) == 0);
        let name = CStr::from_ptr(libc::ptsname(master)).to_str().unwrap().to_owned();
        let slave = File::options().read(true).write(true).open(name).unwrap();
        (File::from_raw_fd(master), slave)
    }
}

fn conversation(options: &[&str]) -> Terminal {
    let cache = scratch("terminal-cache");
    let args = [&["run", chat_model(), "--ignore-eos", "--ctx", "20000"][..], options].concat();
    Terminal::start(minfer(&args).env("MINFER_CACHE", cache).env("TERM", "xterm"))
}

#[test]
fn a_conversation_has_commands_and_ends_with_bye() {
    let mut terminal = conversation(&["-n", "5"]);
    terminal.wait_for(">>> ");
    terminal.say("/help\r");
    terminal.wait_for("/clear");
    terminal.wait_for(">>> ");
    terminal.say("\"\"\"two\r");
    terminal.wait_for("... ");
    terminal.say("lines\"\"\"\r");
    terminal.wait_for(">>> ");
    terminal.say("/frobnicate\r");
    terminal.wait_for("no command /frobnicate");
    terminal.wait_for(">>> ");
    terminal.say("/bye\r");
    assert_eq!(terminal.end(), Some(0));
}

#[test]
fn ctrl_c_ends_an_answer_and_keeps_the_conversation() {
    let mut terminal = conversation(&[]);
    terminal.wait_for(">>> ");
    terminal.say("abc\r");
    terminal.wait_for("abc");
    // Enough text that the answer has begun.
    while terminal.seen.len() < 200 {
        let mut byte = [0; 256];
        let n = terminal.master.read(&mut byte).unwrap();
        terminal.seen.push_str(&String::from_utf8_lossy(&byte[..n]));
    }
    terminal.say("\x03");
    terminal.wait_for("interrupted");
    terminal.wait_for(">>> ");
    terminal.say("\x03");
    terminal.wait_for("Ctrl-D leaves");
    terminal.wait_for(">>> ");
    terminal.say("\x04");
    assert_eq!(terminal.end(), Some(0));
}

#[test]
fn a_model_without_a_template_holds_no_conversation() {
    let mut terminal = Terminal::start(&mut minfer(&["run", model()]));
    terminal.wait_for("error: ");
    terminal.wait_for("give a prompt");
    assert_eq!(terminal.end(), Some(1));
}

#[test]
fn a_terminal_obeys_no_character_of_an_answer() {
    // Token 99 is a filler; spelled with an escape sequence it must not reach the terminal as one.
    let path = write_model("hostile", &[("tokenizer.ggml.tokens", hostile_tokens())]);
    let args =
        ["run", &path, "abc", "-n", "200", "--temp", "5", "--top-k", "0", "--seed", "1", "--ignore-eos"];
    let piped = run(&args);
    assert!(piped.out.contains("\u{7}"), "the answer has no control character to escape: {}", piped.out);
    let mut terminal = Terminal::start(&mut minfer(&args));
    assert!(!terminal.wait_for("\\u{7}").contains('\u{7}'));
    terminal.end();
}
