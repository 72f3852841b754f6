//! Any text is a template that renders or an error, in bounded time and memory.
#![no_main]

use libfuzzer_sys::fuzz_target;
use minfer_text::{ChatTemplate, Message, RenderOptions};
use std::time::SystemTime;

fuzz_target!(|template: &str| {
    let messages = [
        Message::new("system", "Be brief."),
        Message::new("user", "Hello"),
        Message::new("assistant", "Hi"),
        Message::new("user", "<b>\u{1F600}</b>"),
    ];
    let options = RenderOptions {
        add_generation_prompt: true,
        bos_token: "<s>",
        eos_token: "</s>",
        now: SystemTime::UNIX_EPOCH,
    };
    let _ = ChatTemplate::new(template).render(&messages, &options);
});
