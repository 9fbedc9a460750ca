//! Corpora: the inputs of a target in one file, each behind its length (`u32`, big-endian).

use std::{
    fs,
    io::{Error, ErrorKind, Result},
    path::Path,
};

/// The size of a corpus beyond which no longer inputs are kept, bytes: all corpora are replayed in each test run.
const MAX_CORPUS: usize = 64 << 10;

/// The inputs in a corpus.
///
/// # Errors
/// If the file cannot be read, or is cut off.
pub fn unpack(file: &Path) -> Result<Vec<Vec<u8>>> {
    let bytes = fs::read(file)?;
    let (mut rest, mut inputs) = (&bytes[..], Vec::new());
    let cut = || Error::new(ErrorKind::UnexpectedEof, format!("{} is cut off", file.display()));
    while !rest.is_empty() {
        let (length, after) = rest.split_first_chunk().ok_or_else(cut)?;
        let length = u32::from_be_bytes(*length) as usize;
        let (input, after) = after.split_at_checked(length).ok_or_else(cut)?;
        inputs.push(input.to_vec());
        rest = after;
    }
    Ok(inputs)
}

/// Writes the files of a directory as a corpus, the shortest first, until it has its size. Returns the number of inputs.
///
/// # Errors
/// If a file cannot be read or written.
pub fn pack(directory: &Path, file: &Path) -> Result<usize> {
    let mut inputs = Vec::new();
    for entry in fs::read_dir(directory)? {
        inputs.push(fs::read(entry?.path())?);
    }
    inputs.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
    inputs.dedup();
    let (mut bytes, mut count) = (Vec::new(), 0);
    for input in inputs {
        if bytes.len() + input.len() > MAX_CORPUS {
            break;
        }
        bytes.extend((input.len() as u32).to_be_bytes());
        bytes.extend(input);
        count += 1;
    }
    fs::write(file, bytes)?;
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_corpus_holds_the_files_of_a_directory_once() {
        let directory = tempfile::tempdir().unwrap();
        for (name, input) in [("a", "long"), ("b", "x"), ("c", "x"), ("d", "")] {
            fs::write(directory.path().join(name), input).unwrap();
        }
        let packed = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(pack(directory.path(), packed.path()).unwrap(), 3);
        let inputs = unpack(packed.path()).unwrap();
        assert_eq!(inputs, [b"".to_vec(), b"x".to_vec(), b"long".to_vec()]);
        fs::write(packed.path(), [0, 0, 0, 9, 1]).unwrap();
        assert_eq!(unpack(packed.path()).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }
}
