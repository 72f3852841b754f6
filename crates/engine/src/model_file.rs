//! A model file that was read but not loaded: index, configuration, and on demand tokenizer and template.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use minfer_gguf::Index;
use minfer_models::Model;
use minfer_tensor::Bytes;
use minfer_text::{ChatTemplate, SamplingParams, TemplateError, Tokenizer};

use crate::Error;

/// A model file whose metadata is read and checked; no tensor byte was touched.
#[derive(Debug)]
pub struct ModelFile {
    path: PathBuf,
    index: Index,
    model: Arc<Model>,
    tokenizer: OnceCell<Tokenizer>,
    template: OnceCell<Option<ChatTemplate>>,
}

impl ModelFile {
    /// Reads the index of `path` (of a split model its first part) and the model's configuration.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::new(path, Index::open(path)?)
    }

    /// As [`open`](Self::open), but tensor data may be missing: enough for a plan, not for a load.
    pub fn open_header(path: &Path) -> Result<Self, Error> {
        Self::new(path, Index::open_header(path)?)
    }

    fn new(path: &Path, index: Index) -> Result<Self, Error> {
        let model =
            Model::from_index(&index).map_err(|source| Error::Model { path: path.to_owned(), source })?;
        Ok(Self {
            path: path.to_owned(),
            index,
            model: Arc::new(model),
            tokenizer: OnceCell::new(),
            template: OnceCell::new(),
        })
    }

    /// The file; of a split model its first part.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Metadata and tensors.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Configuration, weights, graphs.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// The tokenizer, built when it is first asked for.
    pub fn tokenizer(&self) -> Result<&Tokenizer, Error> {
        get_or_try_init(&self.tokenizer, || {
            let build = Tokenizer::from_metadata(self.index.metadata());
            build.map_err(|source| Error::Tokenizer { path: self.path.clone(), source })
        })
    }

    /// The chat template; `None` if the file has none.
    pub fn chat_template(&self) -> Result<Option<&ChatTemplate>, Error> {
        let template = get_or_try_init(&self.template, || {
            let build = ChatTemplate::from_metadata(self.index.metadata());
            build.map_err(|source| match source {
                TemplateError::Metadata(source) => Error::Gguf(source),
                source => Error::Template { path: self.path.clone(), source },
            })
        })?;
        Ok(template.as_ref())
    }

    /// Sampling parameters of the file, else the field's defaults.
    pub fn sampling(&self) -> Result<SamplingParams, Error> {
        SamplingParams::from_metadata(self.index.metadata())
            .map_err(|source| Error::SamplingDefaults { path: self.path.clone(), source })
    }

    /// The tokenizer, if it was asked for.
    pub(crate) fn loaded_tokenizer(&self) -> Option<&Tokenizer> {
        self.tokenizer.get()
    }

    /// The chat template, if it was asked for and there is one.
    pub(crate) fn loaded_template(&self) -> Option<&ChatTemplate> {
        self.template.get()?.as_ref()
    }

    /// Bytes of all parts together.
    pub fn file_bytes(&self) -> Bytes {
        self.index.parts().iter().map(|part| part.len).sum()
    }
}

/// What to say of a file that ends before its last tensor.
pub fn missing_note(index: &Index) -> Option<String> {
    let missing = index.missing_bytes();
    let text =
        || format!("{missing} of tensor data are missing from the file: finish the download to run it");
    (missing > Bytes::ZERO).then(text)
}

fn get_or_try_init<T, E>(cell: &OnceCell<T>, init: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
    if let Some(value) = cell.get() {
        return Ok(value);
    }
    let value = init()?;
    Ok(cell.get_or_init(|| value))
}
