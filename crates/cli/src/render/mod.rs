//! What people read.

mod bar;
mod blocks;
mod inspect;
mod plan_svg;
mod plan_table;
mod report;

pub(crate) use inspect::inspect;
pub(crate) use plan_svg::plan_svg;
pub(crate) use plan_table::plan_table;
pub(crate) use report::report_table;

use std::path::Path;

use minfer_engine::BackendMemory;

use crate::escape;

/// Columns of everything that is printed.
const COLUMNS: usize = 80;

/// Bytes in MiB, in at most eight characters: with one decimal where there is room, and what is there but rounds to
/// nothing shows.
pub(crate) fn mib(bytes: u64) -> String {
    let mib = bytes as f64 / (1 << 20) as f64;
    match mib {
        _ if bytes > 0 && mib < 0.05 => "<0.1".into(),
        ..999_999.95 => format!("{mib:.1}"),
        ..99_999_999.5 => format!("{mib:.0}"),
        _ => format!("{mib:.1e}"),
    }
}

/// The file's name without its folders, safe to print.
fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    escape::line(&name).into_owned()
}

/// The backend's name where it is one of few: `CPU`.
fn short_name(backend: &BackendMemory) -> String {
    escape::line(&backend.name).to_uppercase()
}

/// `text` cut to `columns` characters, with a mark if something is missing.
fn fit(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let kept: String = text.chars().take(columns.saturating_sub(2)).collect();
    format!("{}..", kept.trim_end())
}

/// `text` broken between words into lines of at most [`COLUMNS`], the first after `label`, the others indented as far.
fn wrap(label: &str, text: &str) -> String {
    let indent = " ".repeat(label.len());
    let mut out = String::new();
    let mut line = label.to_owned();
    for word in text.split_whitespace() {
        let begun = line.chars().count() > label.len();
        if begun && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            out.push_str(&line);
            out.push('\n');
            line = format!("{indent}{word}");
        } else {
            if begun {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    out + &line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_nothing_prints_as_nothing() {
        assert_eq!(mib(0), "0.0");
        assert_eq!(mib(1), "<0.1");
        assert_eq!(mib(3 << 19), "1.5");
    }

    #[test]
    fn any_number_of_bytes_leaves_a_blank_in_its_column() {
        assert_eq!(mib(999_999 << 20), "999999.0");
        assert_eq!(mib(1_000_000 << 20), "1000000");
        assert_eq!(mib(u64::MAX), "1.8e13");
        assert!((0..64).all(|bit| mib(u64::MAX >> bit).len() <= 8));
    }

    #[test]
    fn long_text_is_cut_or_wrapped_at_80_columns() {
        assert_eq!(fit("short", 5), "short");
        assert_eq!(fit("shorter", 5), "sho..");
        let text = wrap("note  ", &"seven27 ".repeat(20));
        assert_eq!(text.lines().count(), 3);
        assert!(text.lines().all(
            |line| line.len() <= COLUMNS && (line.starts_with("note  s") || line.starts_with("      s"))
        ));
    }
}
