//! HTTP as the downloads need it: ranges, the hub's extra headers, redirects followed by hand.

use crate::Digest;
use crate::error::{FetchError, escape};
use std::io::Read;
use std::time::Duration;
use ureq::http::{HeaderMap, Response, header};
use ureq::{Agent, Body};

/// An offline machine should fall back to the next source soon.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_REDIRECTS: usize = 10;
/// A listing of a repository with thousands of files is about 1 MiB.
const MAX_TEXT: u64 = 16 << 20;

pub(crate) struct Http {
    agent: Agent,
}

/// An answer whose body hasn't been read.
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// Bytes that the body will have.
    pub(crate) length: Option<u64>,
    /// The first byte of a partial answer.
    pub(crate) range_start: Option<u64>,
    /// The digest of the whole file as announced by the hub, on whichever hop.
    pub(crate) digest: Option<Digest>,
    body: Body,
}

impl Reply {
    pub(crate) fn into_reader(self) -> impl Read {
        self.body.into_with_config().limit(u64::MAX).reader()
    }
}

impl Http {
    /// `patience` bounds the wait for an answer and for each piece of a body.
    pub(crate) fn new(patience: Duration) -> Http {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_resolve(Some(CONNECT_TIMEOUT))
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_recv_response(Some(patience))
            .timeout_per_read(Some(patience))
            .user_agent(concat!("minfer/", env!("CARGO_PKG_VERSION")))
            .accept_encoding("identity")
            .build();
        Http { agent: config.into() }
    }

    /// Asks for `url` from byte `from` on, through redirects.
    pub(crate) fn get(&self, url: &str, from: u64) -> Result<Reply, FetchError> {
        let broken = |reason: String| FetchError::Transfer { url: escape(url), reason: escape(&reason) };
        let mut at = url.to_owned();
        let mut digest = None;
        for _ in 0..=MAX_REDIRECTS {
            let mut request = self.agent.get(&at);
            if from > 0 {
                request = request.header(header::RANGE, format!("bytes={from}-"));
            }
            let response = request.call().map_err(|error| broken(error.to_string()))?;
            digest = digest.or(linked_digest(response.headers()));
            match response.status().is_redirection() {
                true => at = redirect_target(&at, response.headers()).map_err(broken)?,
                false => return Ok(reply(response, digest)),
            }
        }
        Err(broken(format!("more than {MAX_REDIRECTS} redirects")))
    }

    /// The body of a small text.
    pub(crate) fn get_text(&self, url: &str) -> Result<String, FetchError> {
        let reply = self.get(url, 0)?;
        if reply.status != 200 {
            return Err(status_error(url, reply.status));
        }
        let text = reply.body.into_with_config().limit(MAX_TEXT).read_to_string();
        text.map_err(|error| FetchError::Transfer { url: escape(url), reason: escape(&error.to_string()) })
    }
}

/// The error for a status that isn't the file.
pub(crate) fn status_error(url: &str, status: u16) -> FetchError {
    let advice = match status {
        401 | 403 => ": it is private, gated or misspelt; download it by hand and give its path",
        404 => ": there is no such file",
        429 => ": too many requests, try again later",
        500..=599 => ": the server is in trouble, try again later",
        _ => "",
    };
    FetchError::Status { url: escape(url), status, advice }
}

fn reply(response: Response<Body>, digest: Option<Digest>) -> Reply {
    let headers = response.headers();
    Reply {
        status: response.status().as_u16(),
        length: text(headers, "content-length").and_then(|length| length.parse().ok()),
        range_start: text(headers, "content-range").and_then(range_start),
        digest,
        body: response.into_body(),
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// `X-Linked-ETag: "…"`: for a file in large-file storage the hub gives its SHA-256.
fn linked_digest(headers: &HeaderMap) -> Option<Digest> {
    Digest::parse(text(headers, "x-linked-etag")?.trim_matches('"'))
}

/// `Content-Range: bytes 5-9/10` begins at 5.
fn range_start(range: &str) -> Option<u64> {
    range.strip_prefix("bytes ")?.split_once('-')?.0.parse().ok()
}

/// Where a redirect leads. One that would leave TLS is refused.
fn redirect_target(from: &str, headers: &HeaderMap) -> Result<String, String> {
    let location = text(headers, "location").ok_or("a redirect to nowhere")?;
    let origin_end = from.find("://").map_or(0, |i| i + 3);
    let origin = &from[..from[origin_end..].find('/').map_or(from.len(), |i| origin_end + i)];
    if location.starts_with("https://") || (location.starts_with("http://") && from.starts_with("http://")) {
        Ok(location.into())
    } else if location.starts_with('/') && !location.starts_with("//") {
        Ok(format!("{origin}{location}"))
    } else {
        Err(format!("a redirect to {location:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_stays_on_http_and_off_plain_text() {
        let to = |from: &str, location: &str| {
            redirect_target(from, &HeaderMap::from_iter([(header::LOCATION, location.parse().unwrap())]))
        };
        assert_eq!(to("https://h/a/b", "/c").unwrap(), "https://h/c");
        assert_eq!(to("http://h:1", "/c").unwrap(), "http://h:1/c");
        assert_eq!(to("https://h/a", "https://g/c").unwrap(), "https://g/c");
        assert_eq!(to("http://h/a", "http://g/c").unwrap(), "http://g/c");
        for bad in ["http://g/c", "//g/c", "file:///etc/passwd", "c"] {
            assert!(to("https://h/a", bad).is_err(), "{bad}");
        }
        assert!(redirect_target("https://h", &HeaderMap::new()).is_err());
    }

    #[test]
    fn a_range_begins_where_it_says() {
        assert_eq!(range_start("bytes 5-9/10"), Some(5));
        assert_eq!(range_start("bytes */10"), None);
        assert_eq!(range_start("5-9"), None);
    }
}
