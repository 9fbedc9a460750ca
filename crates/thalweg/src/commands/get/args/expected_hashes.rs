//! Options of `thalweg get` about expected hashes.

use thalweg_part::Digest;

/// Expected hashes.
#[derive(clap::Args)]
#[command(next_help_heading = "Verification")]
pub struct ExpectedHashes {
    /// The SHA-256 hash that the file must have
    #[arg(long, value_name = "HEX")]
    pub sha256: Option<String>,

    /// The BLAKE3 hash that the file must have
    #[arg(long, value_name = "HEX")]
    pub blake3: Option<String>,
}

/// Hexadecimal digits of either hash.
const DIGITS: usize = 64;

impl ExpectedHashes {
    /// The expected hashes.
    ///
    /// # Errors
    /// If one is not 64 hexadecimal digits.
    pub fn digests(&self) -> anyhow::Result<Vec<Digest>> {
        let given = [("sha256", &self.sha256), ("blake3", &self.blake3)];
        given.into_iter().filter_map(|(name, hex)| Some(digest(name, hex.as_ref()?))).collect()
    }
}

fn digest(name: &str, hex: &str) -> anyhow::Result<Digest> {
    let hex = hex.trim();
    let count = hex.chars().count();
    match hex.chars().find(|c| !c.is_ascii_hexdigit()) {
        Some(c) => anyhow::bail!(
            "--{name}: `{}` is not a hexadecimal digit; a {name} hash has {DIGITS} of them",
            c.escape_default()
        ),
        None if count != DIGITS => {
            anyhow::bail!(
                "--{name}: {count} digits given; a {name} hash has {DIGITS} hexadecimal digits"
            )
        }
        None => format!("{name}:{hex}").parse().map_err(|e| anyhow::anyhow!("--{name}: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_hash_is_explained() {
        let error_text = |hex: &str| digest("sha256", hex).unwrap_err().to_string();
        assert!(error_text("12").contains("2 digits given"), "{}", error_text("12"));
        assert!(error_text("").contains("0 digits given"));
        assert!(error_text(&"g".repeat(64)).contains("`g` is not a hexadecimal digit"));
        assert!(digest("blake3", &format!(" {} ", "A".repeat(64))).is_ok());
    }
}
