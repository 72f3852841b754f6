//! An HTTP server in this process that answers as a test says, and a progress that takes notes.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use minfer_fetch::{Alias, Digest, Fetcher, HubFile, Options, Progress, Wheel};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What a client asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub path: String,
    /// The first byte of `Range: bytes=N-`.
    pub from: Option<usize>,
}

/// What the server says.
#[derive(Default)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
    /// `Content-Length`, if it isn't the body's.
    pub claimed: Option<usize>,
    /// A silence after the first half of the body.
    pub silence: Duration,
}

impl Answer {
    pub fn status(status: u16) -> Answer {
        Answer { status, ..Answer::default() }
    }

    pub fn whole(body: &[u8]) -> Answer {
        Answer { status: 200, body: body.into(), ..Answer::default() }
    }

    /// What a server that knows ranges answers.
    pub fn ranged(content: &[u8], request: &Request) -> Answer {
        match request.from {
            None => Answer::whole(content),
            Some(from) if from >= content.len() => Answer::status(416),
            Some(from) => {
                let range = format!("bytes {from}-{}/{}", content.len() - 1, content.len());
                let answer = Answer { status: 206, body: content[from..].into(), ..Answer::default() };
                answer.with("Content-Range", range)
            }
        }
    }

    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Answer {
        self.headers.push((name, value.into()));
        self
    }

    /// The first `n` bytes of the body under a length that promises all of it.
    pub fn cut(mut self, n: usize) -> Answer {
        self.claimed = Some(self.body.len());
        self.body.truncate(n);
        self
    }
}

/// A server on a port of its own, until the process ends.
pub struct Server {
    pub url: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// `answer` gets each request and its number, from 0.
    pub fn start(mut answer: impl FnMut(&Request, usize) -> Answer + Send + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&requests);
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let stream = stream.unwrap();
                let request = read_request(&stream);
                log.lock().unwrap().push(request.clone());
                // The client may be gone by now: that is what some tests are about.
                let _ = write_answer(&stream, &answer(&request, number));
            }
        });
        Server { url, requests }
    }

    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

fn read_request(stream: &TcpStream) -> Request {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty());
    let path = lines.next().and_then(|line| line.split(' ').nth(1).map(str::to_owned)).unwrap_or_default();
    let range =
        lines.find_map(|line| line.to_ascii_lowercase().strip_prefix("range: bytes=").map(str::to_owned));
    Request { path, from: range.and_then(|range| range.trim_end_matches('-').parse().ok()) }
}

fn write_answer(mut stream: &TcpStream, answer: &Answer) -> std::io::Result<()> {
    let length = answer.claimed.unwrap_or(answer.body.len());
    write!(stream, "HTTP/1.1 {} x\r\nConnection: close\r\nContent-Length: {length}\r\n", answer.status)?;
    for (name, value) in &answer.headers {
        write!(stream, "{name}: {value}\r\n")?;
    }
    write!(stream, "\r\n")?;
    let (first, second) = answer.body.split_at(answer.body.len() / 2);
    stream.write_all(first)?;
    stream.flush()?;
    std::thread::sleep(answer.silence);
    stream.write_all(second)
}

/// Everything that was told, as lines.
#[derive(Default)]
pub struct Notes(pub Vec<String>);

impl Progress for Notes {
    fn begin(&mut self, what: &str, total: Option<u64>) {
        self.0.push(format!("begin {what} {total:?}"));
    }
    fn advance(&mut self, done: u64) {
        self.0.push(format!("at {done}"));
    }
    fn end(&mut self) {
        self.0.push("end".into());
    }
    fn note(&mut self, text: &str) {
        self.0.push(format!("note {text}"));
    }
}

/// Content long enough to come in several reads.
pub fn content() -> Vec<u8> {
    (0..300_000u32)
        .flat_map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8..=u8::MAX)
        .take(1_000_000)
        .collect()
}

pub fn fetcher(cache: &Path, hub: &str) -> Fetcher {
    Fetcher::new(Options { pause: Duration::from_millis(1), ..options(cache, hub) })
}

pub fn options(cache: &Path, hub: &str) -> Options {
    Options { hub: hub.into(), python: "/nonexistent/python3".into(), ..Options::new(cache.into()) }
}

/// An alias `test:1` for this content, on the hub as `o/r`, `m.gguf`, and in these wheels.
pub fn alias(content: &[u8], wheels: &'static [Wheel]) -> &'static Alias {
    Box::leak(Box::new(Alias {
        name: "test:1",
        file: "m.gguf",
        sha256: Digest::of(content),
        hub: Some(HubFile { repo: "o/r", file: "m.gguf" }),
        wheels,
    }))
}

/// The names of all files below `dir`, sorted, without the locks.
pub fn files(dir: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => names.extend(files(&entry.path())),
            false => names.push(entry.file_name().into_string().unwrap()),
        }
    }
    names.retain(|name| name != ".lock");
    names.sort();
    names
}
