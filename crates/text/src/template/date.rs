//! `strftime_now`: the date in UTC. The system's time zone would take a time zone database, for a date in a prompt.

use std::time::{SystemTime, UNIX_EPOCH};

use minijinja::{Error, ErrorKind};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// A moment in the Gregorian calendar.
struct Date {
    year: i64,
    /// From 0.
    month: usize,
    /// From 1.
    day: i64,
    /// From 0, Sunday.
    weekday: usize,
    seconds: i64,
}

impl Date {
    fn new(time: SystemTime) -> Self {
        let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().min(1 << 40) as i64);
        let days = seconds / 86_400;
        // Howard Hinnant's civil_from_days: eras of 400 years that begin on the 1st of March.
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * day_of_year + 2) / 153;
        let month = (from_march + 2) % 12;
        Self {
            year: era * 400 + year_of_era + i64::from(month < 2),
            month: month as usize,
            day: day_of_year - (153 * from_march + 2) / 5 + 1,
            weekday: ((days + 4) % 7) as usize,
            seconds: seconds % 86_400,
        }
    }
}

/// Python's `strftime`, for the fields that a date or a time has; `-` drops leading zeros.
pub(super) fn strftime(now: SystemTime, format: &str) -> Result<String, Error> {
    let date = Date::new(now);
    let (hour, minute, second) = (date.seconds / 3600, date.seconds / 60 % 60, date.seconds % 60);
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut field = chars.next();
        let width = if field == Some('-') { 1 } else { 2 };
        if width == 1 {
            field = chars.next();
        }
        let number = |n: i64| format!("{n:0width$}");
        out.push_str(&match field {
            Some('Y') => date.year.to_string(),
            Some('y') => number(date.year % 100),
            Some('m') => number(date.month as i64 + 1),
            Some('B') => MONTHS[date.month].to_owned(),
            Some('b' | 'h') => MONTHS[date.month][..3].to_owned(),
            Some('d') => number(date.day),
            Some('A') => DAYS[date.weekday].to_owned(),
            Some('a') => DAYS[date.weekday][..3].to_owned(),
            Some('H') => number(hour),
            Some('I') => number((hour + 11) % 12 + 1),
            Some('p') => if hour < 12 { "AM" } else { "PM" }.to_owned(),
            Some('M') => number(minute),
            Some('S') => number(second),
            Some('Z') => "UTC".to_owned(),
            Some('%') => "%".to_owned(),
            _ => {
                let message = format!("strftime_now doesn't know a field of the format {format:?}");
                return Err(Error::new(ErrorKind::InvalidOperation, message));
            }
        });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(seconds: u64, format: &str) -> String {
        strftime(UNIX_EPOCH + Duration::from_secs(seconds), format).unwrap()
    }

    #[test]
    fn dates() {
        assert_eq!(at(0, "%A %d %B %Y %H:%M:%S"), "Thursday 01 January 1970 00:00:00");
        assert_eq!(at(951_782_400, "%a %-d %b %y"), "Tue 29 Feb 00");
        assert_eq!(at(1_735_689_599, "%Y-%m-%d %I %p %%"), "2024-12-31 11 PM %");
    }

    #[test]
    fn unknown_fields_are_refused() {
        assert!(strftime(UNIX_EPOCH, "%Q").is_err());
        assert!(strftime(UNIX_EPOCH, "%").is_err());
    }
}
