//! What a user says in a conversation.

/// What a user may say.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Input<'a> {
    Nothing,
    Help,
    Clear,
    System(Option<&'a str>),
    Bye,
    Unknown(&'a str),
    Message(&'a str),
}

impl<'a> Input<'a> {
    pub(super) fn parse(text: &'a str) -> Self {
        let text = text.trim();
        if text.is_empty() {
            return Self::Nothing;
        }
        if !text.starts_with('/') || text.contains('\n') {
            return Self::Message(text);
        }
        let (command, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        match command {
            "/help" | "/?" => Self::Help,
            "/clear" => Self::Clear,
            "/system" => Self::System(Some(rest.trim()).filter(|rest| !rest.is_empty())),
            "/bye" | "/exit" | "/quit" => Self::Bye,
            _ => Self::Unknown(command),
        }
    }
}

/// Lines that make one message: between two `"""`, or continued by a `\` at their end.
#[derive(Default)]
pub(super) struct Lines {
    pub(super) text: String,
    fenced: bool,
}

impl Lines {
    /// Takes a line; `true` if the message is complete.
    pub(super) fn push(&mut self, line: &str) -> bool {
        const FENCE: &str = "\"\"\"";
        let opens = !self.fenced && self.text.is_empty() && line.trim_start().starts_with(FENCE);
        let line = if opens { line.trim_start().trim_start_matches(FENCE) } else { line };
        self.fenced |= opens;
        if self.fenced {
            let end = line.find(FENCE);
            self.text.push_str(&line[..end.unwrap_or(line.len())]);
            if end.is_none() {
                self.text.push('\n');
            }
            return end.is_some();
        }
        let continued = line.strip_suffix('\\');
        self.text.push_str(continued.unwrap_or(line));
        if continued.is_some() {
            self.text.push('\n');
        }
        continued.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(lines: &[&str]) -> Option<String> {
        let mut all = Lines::default();
        let (last, first) = lines.split_last()?;
        for line in first {
            assert!(!all.push(line), "{line} ends the message");
        }
        all.push(last).then_some(all.text)
    }

    #[test]
    fn a_line_is_a_message() {
        assert_eq!(message(&["Why?"]).as_deref(), Some("Why?"));
        assert_eq!(message(&["say \"\"\"x\"\"\""]).as_deref(), Some("say \"\"\"x\"\"\""));
    }

    #[test]
    fn a_backslash_continues_and_quotes_enclose() {
        assert_eq!(message(&["a\\", "b"]).as_deref(), Some("a\nb"));
        assert_eq!(message(&["\"\"\"a", "  b\\", "\"\"\""]).as_deref(), Some("a\n  b\\\n"));
        assert_eq!(message(&["\"\"\"a\"\"\""]).as_deref(), Some("a"));
        assert_eq!(message(&["\"\"\"", "a"]), None);
    }

    #[test]
    fn a_slash_begins_a_command() {
        assert_eq!(Input::parse("  "), Input::Nothing);
        assert_eq!(Input::parse("/system  be brief "), Input::System(Some("be brief")));
        assert_eq!(Input::parse("/system"), Input::System(None));
        assert_eq!(Input::parse("/bye"), Input::Bye);
        assert_eq!(Input::parse("/frobnicate x"), Input::Unknown("/frobnicate"));
        assert_eq!(Input::parse("a /bye"), Input::Message("a /bye"));
        assert_eq!(Input::parse("/*\n*/"), Input::Message("/*\n*/"));
    }
}
