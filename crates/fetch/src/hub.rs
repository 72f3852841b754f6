//! Repositories of the hub: addresses, listings, split files.

use crate::error::{FetchError, escape};
use crate::http::Http;
use crate::reference::check_file;

/// The address of a file's content.
pub(crate) fn file_url(hub: &str, repo: &str, file: &str) -> String {
    format!("{hub}/{}/resolve/main/{}", encode(repo), encode(file))
}

/// The name of the only GGUF model of a repository: of a split one, its first part.
pub(crate) fn only_model(http: &Http, hub: &str, repo: &str) -> Result<String, FetchError> {
    let url = format!("{hub}/api/models/{}", encode(repo));
    let mut models = models_of(&http.get_text(&url)?)
        .map_err(|reason| FetchError::Listing { url: escape(&url), reason: escape(&reason) })?;
    match models.len() {
        1 => Ok(models.remove(0)),
        _ => Err(FetchError::Choice { repo: escape(repo), files: models }),
    }
}

/// The GGUF files of a listing, sorted, of a split model only the first part.
fn models_of(listing: &str) -> Result<Vec<String>, String> {
    let listing: serde_json::Value = serde_json::from_str(listing).map_err(|error| error.to_string())?;
    let siblings = listing["siblings"].as_array().ok_or("it has no array \"siblings\"")?;
    let names = siblings.iter().filter_map(|sibling| sibling["rfilename"].as_str());
    let mut models: Vec<String> = names
        .filter(|name| check_file(name).is_ok() && split_parts(name)[0] == *name)
        .map(Into::into)
        .collect();
    models.sort();
    Ok(models)
}

/// All parts of a model, given any of them: `x-00002-of-00003.gguf` has three, `x.gguf` is its own.
pub(crate) fn split_parts(file: &str) -> Vec<String> {
    match split_name(file) {
        Some((stem, count)) => (1..=count).map(|i| format!("{stem}-{i:05}-of-{count:05}.gguf")).collect(),
        None => vec![file.into()],
    }
}

/// `stem-NNNNN-of-NNNNN.gguf`
fn split_name(file: &str) -> Option<(&str, u32)> {
    let (rest, count) = file.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (stem, index) = rest.rsplit_once('-')?;
    let number = |digits: &str| match digits.len() == 5 && digits.bytes().all(|digit| digit.is_ascii_digit())
    {
        true => digits.parse::<u32>().ok(),
        false => None,
    };
    let (index, count) = (number(index)?, number(count)?);
    (1..=count).contains(&index).then_some((stem, count))
}

/// Percent-encodes everything that isn't plain in a path.
fn encode(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    path.bytes().fold(String::new(), |mut url, byte| {
        match plain(byte) {
            true => url.push(byte.into()),
            false => url += &format!("%{byte:02X}"),
        }
        url
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_split_model_is_all_its_parts() {
        let parts = ["q/x-00001-of-00003.gguf", "q/x-00002-of-00003.gguf", "q/x-00003-of-00003.gguf"];
        assert_eq!(split_parts("q/x-00002-of-00003.gguf"), parts);
        for whole in [
            "x.gguf",
            "x-00000-of-00003.gguf",
            "x-00004-of-00003.gguf",
            "x-1-of-3.gguf",
            "x-+0001-of-00003.gguf",
        ] {
            assert_eq!(split_parts(whole), [whole]);
        }
    }

    #[test]
    fn a_listing_gives_safe_models_once() {
        let names = ["b.gguf", "README.md", "../evil.gguf", "a-00001-of-00002.gguf", "a-00002-of-00002.gguf"];
        let siblings: Vec<_> = names.map(|name| serde_json::json!({ "rfilename": name })).into();
        let listing = serde_json::json!({ "siblings": siblings }).to_string();
        assert_eq!(models_of(&listing).unwrap(), ["a-00001-of-00002.gguf", "b.gguf"]);
        assert!(models_of("{}").is_err());
        assert!(models_of("<html>").is_err());
    }

    #[test]
    fn addresses_are_encoded() {
        assert_eq!(
            file_url("http://h", "o/r", "q/m é%.gguf"),
            "http://h/o/r/resolve/main/q/m%20%C3%A9%25.gguf"
        );
    }
}
