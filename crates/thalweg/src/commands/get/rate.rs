//! Rates on the command line: in bytes per second as with curl, or with a unit.

use std::num::NonZeroU64;
use thalweg_units::Rate;

/// Parses `500k`, `2M` or `1G` (powers of 1024, as with curl and wget), plain bytes per second, or a rate with its
/// unit.
///
/// # Errors
/// The mistake, and how to write a rate.
pub fn bytes_per_second(text: &str) -> Result<NonZeroU64, String> {
    let bytes = match suffixed(text.trim()) {
        Some(bytes) => bytes,
        None => match text.parse::<Rate>() {
            Ok(rate) => rate.as_bps() / 8,
            Err(_) => return Err("write it like 500k, 2M or \"40 Mbit/s\"".to_owned()),
        },
    };
    NonZeroU64::new(bytes).ok_or_else(|| "it must be at least 1 byte per second".to_owned())
}

/// Parses curl's notation; `None` if the text has another form.
fn suffixed(text: &str) -> Option<u64> {
    let end = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let power = match text[end..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        _ => return None,
    };
    let number: f64 = text[..end].parse().ok()?;
    let bytes = number * 1024_f64.powi(power);
    // A larger number would overflow as bits, and no link is that fast.
    (0.0..1e18).contains(&bytes).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_suffixes_mean_bytes_and_units_mean_themselves() {
        for (text, bytes) in [
            ("500k", 512_000),
            ("2M", 2 << 20),
            ("1.5m", 3 << 19),
            ("1G", 1 << 30),
            ("10000", 10_000),
            ("7B", 7),
            ("40 Mbit/s", 5_000_000),
            ("2 MB/s", 2_000_000),
        ] {
            assert_eq!(bytes_per_second(text).map(NonZeroU64::get), Ok(bytes), "{text}");
        }
        for text in ["", "0", "k", "-5k", "5x", "5 parsec", "nan", "1e30G", "7 bit/s"] {
            assert!(bytes_per_second(text).is_err(), "{text}");
        }
    }
}
