//! Downloads from a hub that behaves well, badly, and not at all.

#![allow(clippy::unwrap_used)]

mod support;

use minfer_fetch::{Digest, FetchError};
use std::fs;
use std::time::Duration;
use support::{Answer, Notes, Request, Server, alias, content, fetcher, files, options};
use tempfile::tempdir;

const MODEL: &str = "/o/r/resolve/main/m.gguf";

fn asked(from: Option<usize>) -> Request {
    Request { path: MODEL.into(), from }
}

#[test]
fn a_file_is_fetched_once() {
    let cache = tempdir().unwrap();
    let server = Server::start(|_, _| Answer::whole(&content()));
    let mut notes = Notes::default();
    let path = fetcher(cache.path(), &server.url).resolve(Some("hf:o/r:m.gguf"), &mut notes).unwrap();
    assert_eq!(fs::read(&path).unwrap(), content());
    assert_eq!(notes.0.first().unwrap(), "begin m.gguf Some(1000000)");
    assert_eq!(notes.0[notes.0.len() - 2..], ["at 1000000", "end"]);
    assert_eq!(files(cache.path()), ["m.gguf", "m.gguf.sha256"]);

    let again = fetcher(cache.path(), &server.url).resolve(Some("hf:o/r:m.gguf"), &mut ()).unwrap();
    assert_eq!(again, path);
    assert_eq!(server.requests(), [asked(None)]);
}

#[test]
fn a_broken_connection_is_resumed_where_it_broke() {
    let cache = tempdir().unwrap();
    let server = Server::start(|request, number| match number {
        0 => Answer::ranged(&content(), request).cut(400_000),
        _ => Answer::ranged(&content(), request),
    });
    let path = fetcher(cache.path(), &server.url).alias(alias(&content(), &[]), &mut ()).unwrap();
    assert_eq!(fs::read(path).unwrap(), content());
    assert_eq!(server.requests(), [asked(None), asked(Some(400_000))]);
}

#[test]
fn what_an_earlier_run_left_is_resumed() {
    let cache = tempdir().unwrap();
    let part = cache.path().join("alias/test-1/m.gguf.part");
    fs::create_dir_all(part.parent().unwrap()).unwrap();
    fs::write(&part, &content()[..123_456]).unwrap();
    let server = Server::start(|request, _| Answer::ranged(&content(), request));
    let path = fetcher(cache.path(), &server.url).alias(alias(&content(), &[]), &mut ()).unwrap();
    assert_eq!(fs::read(path).unwrap(), content());
    assert_eq!(server.requests(), [asked(Some(123_456))]);
}

#[test]
fn a_part_of_something_else_is_fetched_from_the_start() {
    let cache = tempdir().unwrap();
    let part = cache.path().join("alias/test-1/m.gguf.part");
    fs::create_dir_all(part.parent().unwrap()).unwrap();
    fs::write(&part, vec![7; 1000]).unwrap();
    let server = Server::start(|request, _| Answer::ranged(&content(), request));
    fetcher(cache.path(), &server.url).alias(alias(&content(), &[]), &mut ()).unwrap();
    assert_eq!(server.requests(), [asked(Some(1000)), asked(None)]);
}

#[test]
fn a_part_that_is_the_whole_file_is_taken_and_a_longer_one_is_not() {
    for (extra, requests) in [(0, 1), (5, 2)] {
        let cache = tempdir().unwrap();
        let part = cache.path().join("alias/test-1/m.gguf.part");
        fs::create_dir_all(part.parent().unwrap()).unwrap();
        fs::write(&part, [content(), vec![0; extra]].concat()).unwrap();
        let server = Server::start(|request, _| Answer::ranged(&content(), request));
        let path = fetcher(cache.path(), &server.url).alias(alias(&content(), &[]), &mut ()).unwrap();
        assert_eq!(fs::read(path).unwrap(), content());
        assert_eq!(server.requests().len(), requests);
    }
}

#[test]
fn a_server_without_ranges_sends_everything_again() {
    let cache = tempdir().unwrap();
    let server = Server::start(|_, number| match number {
        0 => Answer::whole(&content()).cut(400_000),
        _ => Answer::whole(&content()),
    });
    let path = fetcher(cache.path(), &server.url).alias(alias(&content(), &[]), &mut ()).unwrap();
    assert_eq!(fs::read(path).unwrap(), content());
}

#[test]
fn a_wrong_range_is_not_appended() {
    let cache = tempdir().unwrap();
    let server = Server::start(|request, number| match number {
        0 => Answer::whole(&content()).cut(400_000),
        1 => {
            Answer { status: 206, body: content(), ..Answer::default() }.with("Content-Range", "bytes 0-9/10")
        }
        _ => Answer::ranged(&content(), request),
    });
    let path = fetcher(cache.path(), &server.url).alias(alias(&content(), &[]), &mut ()).unwrap();
    assert_eq!(fs::read(path).unwrap(), content());
    assert_eq!(server.requests().last().unwrap(), &asked(None));
}

#[test]
fn a_partial_answer_that_nobody_asked_for_is_refused() {
    for status in [206, 416] {
        let cache = tempdir().unwrap();
        let server = Server::start(move |_, _| Answer::status(status));
        let error = fetcher(cache.path(), &server.url).alias(alias(&content(), &[]), &mut ()).unwrap_err();
        assert!(error.to_string().contains(&status.to_string()), "{error}");
        assert_eq!(server.requests(), [asked(None)]);
    }
}

#[test]
fn without_a_digest_nothing_is_resumed() {
    let cache = tempdir().unwrap();
    let server = Server::start(|request, number| match number {
        0 => Answer::whole(&content()).cut(400_000),
        _ => Answer::ranged(&content(), request),
    });
    let path = fetcher(cache.path(), &server.url).resolve(Some("hf:o/r:m.gguf"), &mut ()).unwrap();
    assert_eq!(fs::read(path).unwrap(), content());
    assert_eq!(server.requests(), [asked(None), asked(None)]);
}

#[test]
fn a_server_that_always_breaks_is_given_up_and_its_part_kept() {
    let cache = tempdir().unwrap();
    let server = Server::start(|_, _| Answer::whole(&content()).cut(400_000));
    let error = fetcher(cache.path(), &server.url).alias(alias(&content(), &[]), &mut ()).unwrap_err();
    assert!(error.to_string().contains("m.gguf"), "{error}");
    assert_eq!(server.requests().len(), 3);
    assert_eq!(files(cache.path()), ["m.gguf.part"]);
    assert_eq!(fs::metadata(cache.path().join("alias/test-1/m.gguf.part")).unwrap().len(), 400_000);
}

#[test]
fn the_wrong_content_is_removed_and_both_digests_named() {
    let cache = tempdir().unwrap();
    let server = Server::start(|_, _| Answer::whole(b"something else"));
    let error =
        fetcher(cache.path(), &server.url).alias(alias(&content(), &[]), &mut ()).unwrap_err().to_string();
    assert!(error.contains(&Digest::of(b"something else").to_string()), "{error}");
    assert!(error.contains(&Digest::of(&content()).to_string()), "{error}");
    assert_eq!(files(cache.path()), [""; 0]);
}

#[test]
fn the_digest_that_the_hub_announces_is_checked() {
    let cache = tempdir().unwrap();
    let server = Server::start(|request, _| match request.path.as_str() {
        MODEL => Answer::status(302)
            .with("Location", "/blob")
            .with("X-Linked-ETag", format!("\"{}\"", Digest::of(&content()))),
        _ => Answer::whole(b"something else"),
    });
    let error = fetcher(cache.path(), &server.url).resolve(Some("hf:o/r:m.gguf"), &mut ()).unwrap_err();
    assert!(
        matches!(error, FetchError::Digest { expected, .. } if expected == Digest::of(&content())),
        "{error}"
    );
}

#[test]
fn redirects_are_followed_and_a_circle_is_not() {
    let cache = tempdir().unwrap();
    let server = Server::start(|request, _| match request.path.as_str() {
        MODEL => Answer::status(302).with("Location", "/a"),
        "/a" => Answer::status(307).with("Location", "/b"),
        "/b" => Answer::whole(&content()),
        _ => Answer::status(302).with("Location", "/circle"),
    });
    fetcher(cache.path(), &server.url).resolve(Some("hf:o/r:m.gguf"), &mut ()).unwrap();
    let error = fetcher(cache.path(), &server.url).resolve(Some("hf:o/r:n.gguf"), &mut ()).unwrap_err();
    assert!(error.to_string().contains("redirects"), "{error}");
}

#[test]
fn a_missing_file_and_a_gated_one_say_so_at_once() {
    for (status, word) in [(404, "no such file"), (401, "gated"), (403, "gated"), (418, "418")] {
        let cache = tempdir().unwrap();
        let server = Server::start(move |_, _| Answer::status(status));
        let error = fetcher(cache.path(), &server.url).resolve(Some("hf:o/r:m.gguf"), &mut ()).unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
        assert_eq!(server.requests().len(), 1);
        assert_eq!(files(cache.path()), [""; 0]);
    }
}

#[test]
fn a_server_in_trouble_is_asked_again() {
    let cache = tempdir().unwrap();
    let server = Server::start(|_, number| match number {
        0 => Answer::status(503),
        1 => Answer::status(429),
        _ => Answer::whole(&content()),
    });
    fetcher(cache.path(), &server.url).resolve(Some("hf:o/r:m.gguf"), &mut ()).unwrap();
    assert_eq!(server.requests().len(), 3);
}

#[test]
fn a_silent_server_is_not_waited_for() {
    let cache = tempdir().unwrap();
    let server = Server::start(|request, number| Answer {
        silence: Duration::from_secs(if number == 0 { 1 } else { 0 }),
        ..Answer::ranged(&content(), request)
    });
    let impatient = minfer_fetch::Options {
        patience: Duration::from_millis(200),
        pause: Duration::from_secs(1),
        ..options(cache.path(), &server.url)
    };
    let path = minfer_fetch::Fetcher::new(impatient).alias(alias(&content(), &[]), &mut ()).unwrap();
    assert_eq!(fs::read(path).unwrap(), content());
    assert_eq!(server.requests(), [asked(None), asked(Some(500_000))]);
}

#[test]
fn no_server_is_an_error_that_names_it() {
    let cache = tempdir().unwrap();
    let error =
        fetcher(cache.path(), "http://127.0.0.1:9").resolve(Some("hf:o/r:m.gguf"), &mut ()).unwrap_err();
    assert!(error.to_string().starts_with("cannot fetch http://127.0.0.1:9/o/r"), "{error}");
}

#[test]
fn a_cached_file_that_was_cut_is_fetched_again() {
    let cache = tempdir().unwrap();
    let server = Server::start(|_, _| Answer::whole(&content()));
    let path = fetcher(cache.path(), &server.url).alias(alias(&content(), &[]), &mut ()).unwrap();
    fs::write(&path, &content()[..999]).unwrap();
    let mut notes = Notes::default();
    fetcher(cache.path(), &server.url).alias(alias(&content(), &[]), &mut notes).unwrap();
    assert!(notes.0[0].contains("999 bytes of 1000000"), "{:?}", notes.0);
    assert_eq!(fs::read(path).unwrap(), content());
}

#[test]
fn a_repository_with_one_model_needs_no_file_name() {
    let cache = tempdir().unwrap();
    let server = Server::start(|request, _| match request.path.as_str() {
        "/api/models/o/r" => Answer::whole(
            br#"{"siblings": [{"rfilename": "README.md"}, {"rfilename": "q/m-00002-of-00002.gguf"},
                              {"rfilename": "q/m-00001-of-00002.gguf"}]}"#,
        ),
        path => Answer::whole(path.as_bytes()),
    });
    let path = fetcher(cache.path(), &server.url).resolve(Some("hf:o/r"), &mut ()).unwrap();
    assert!(path.ends_with("hf/o/r/q/m-00001-of-00002.gguf"), "{path:?}");
    assert_eq!(
        fs::read(path.with_file_name("m-00002-of-00002.gguf")).unwrap(),
        b"/o/r/resolve/main/q/m-00002-of-00002.gguf"
    );

    let offline = fetcher(cache.path(), "http://127.0.0.1:9").resolve(Some("hf:o/r"), &mut ()).unwrap();
    assert_eq!(offline, path);
}

#[test]
fn a_repository_with_several_models_lists_them() {
    let cache = tempdir().unwrap();
    let server = Server::start(|request, _| match request.path.as_str() {
        "/api/models/o/r" => {
            Answer::whole(br#"{"siblings": [{"rfilename": "a.gguf"}, {"rfilename": "b.gguf"}]}"#)
        }
        "/api/models/o/none" => Answer::whole(br#"{"siblings": []}"#),
        "/api/models/o/bad" => Answer::whole(b"<html>"),
        _ => Answer::status(404),
    });
    let resolve =
        |model| fetcher(cache.path(), &server.url).resolve(Some(model), &mut ()).unwrap_err().to_string();
    let error = resolve("hf:o/r");
    assert!(error.contains("2 GGUF files") && error.contains("\n  a.gguf\n  b.gguf"), "{error}");
    assert!(resolve("hf:o/none").contains("no GGUF file"));
    assert!(resolve("hf:o/bad").contains("cannot read the list"));
    assert!(resolve("hf:o/missing").contains("404"));
}

#[test]
fn two_at_once_fetch_once() {
    let cache = tempdir().unwrap();
    let server =
        Server::start(|_, _| Answer { silence: Duration::from_millis(100), ..Answer::whole(&content()) });
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope
                .spawn(|| fetcher(cache.path(), &server.url).alias(alias(&content(), &[]), &mut ()).unwrap());
        }
    });
    assert_eq!(server.requests().len(), 1);
}
