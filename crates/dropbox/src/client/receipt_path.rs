//! The paths of receipt files beside the submitted files. Receipt files are recognised by their content, so that they
//! are not submitted themselves.

use super::Target;
use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, Read as _},
    os::unix::{
        ffi::{OsStrExt as _, OsStringExt as _},
        fs::OpenOptionsExt as _,
    },
    path::{Path, PathBuf},
};
use thalweg_wire::{bistro::Evidence, file_name};

/// The lengths to which a name is shortened if `NAME.receipt` is too long for the filesystem: for limits of 255 bytes,
/// of the 143 bytes that eCryptfs leaves, and of fewer.
const SHORTER: [usize; 3] = [235, 120, 64];

/// The first bytes of a file that are read to recognise a receipt.
const HEAD: u64 = 4096;

/// The path of `NAME` and `suffix` in a directory. If both together are too long, the name is shortened
/// ([`file_name::fitting`]). The same name always gives the same path.
///
/// # Errors
/// Returns `InvalidFilename` if even the shortest name fails because the directory's own path is too long.
pub fn path_beside(directory: &Path, name: &OsStr, suffix: &str) -> io::Result<PathBuf> {
    let with = |name: &OsStr| {
        let mut name = name.to_owned();
        name.push(suffix);
        directory.join(name)
    };
    let shorter =
        SHORTER.iter().map(|most| OsString::from_vec(file_name::fitting(name.as_bytes(), *most)));
    let mut names = std::iter::once(name.to_owned()).chain(shorter).map(|name| with(&name));
    names.find(|path| !is_too_long(path)).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidFilename, "the path of its directory is too long")
    })
}

fn is_too_long(path: &Path) -> bool {
    let found = fs::symlink_metadata(path);
    found.is_err_and(|e| e.kind() == io::ErrorKind::InvalidFilename)
}

/// Opens a file to submit. It never blocks, for example on a pipe without a writer.
///
/// # Errors
/// Returns a system error; `IsADirectory` or `InvalidInput` if it is not a regular file.
pub fn open_data(file: &Path) -> io::Result<File> {
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let opened = File::options().read(true).custom_flags(nonblocking).open(file)?;
    let found = opened.metadata()?;
    match (found.is_file(), found.is_dir()) {
        (true, _) => Ok(opened),
        (_, true) => Err(io::Error::new(
            io::ErrorKind::IsADirectory,
            "it is a directory: pack it, e.g. with `tar`, and submit the archive",
        )),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is a device, socket or pipe, not a file",
        )),
    }
}

impl Target {
    /// Whether the file is a receipt file of this box, judged by its first lines, which name the box and the
    /// destination's key. Its name and the validity of its signatures do not matter.
    ///
    /// # Errors
    /// As [`open_data`].
    pub fn is_receipt(&self, file: &Path) -> io::Result<bool> {
        let mut head = Vec::new();
        open_data(file)?.take(HEAD).read_to_end(&mut head)?;
        let of = Evidence::read_names(&String::from_utf8_lossy(&head));
        Ok(of.is_some_and(|(name, key)| name == self.drop_box && key == self.port.key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeAddress;
    use thalweg_net::PrivateKey;
    use thalweg_wire::Signer as _;

    fn target() -> Target {
        let port = NodeAddress { key: PrivateKey::from_seed(&[1; 32]).id(), addresses: Vec::new() };
        Target { drop_box: "taxes".parse().unwrap(), port }
    }

    #[test]
    fn a_long_name_gives_one_creatable_path() {
        let dir = tempfile::tempdir().unwrap();
        for length in [1, 200, 242, 243, 247, 248, 254, 255] {
            let name: OsString = format!("{}.pdf", "n".repeat(length)).split_off(4).into();
            for suffix in [".receipt", ".receipt.anew"] {
                let place = path_beside(dir.path(), &name, suffix).unwrap();
                File::create(&place).unwrap();
                assert_eq!(path_beside(dir.path(), &name, suffix).unwrap(), place, "{length}");
                let kept = place.file_name().unwrap().to_str().unwrap().to_owned();
                assert!(kept.ends_with(suffix), "{kept}");
                let whole = length + suffix.len() <= 255;
                assert_eq!(kept.contains('~'), !whole, "{length} {suffix}");
            }
        }
        let deep = dir.path().join(["d".repeat(200).as_str(); 25].join("/"));
        let error = path_beside(&deep, OsStr::new("a"), ".receipt").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidFilename);
    }

    #[test]
    fn a_receipt_is_recognised_by_its_content() {
        let dir = tempfile::tempdir().unwrap();
        let of = |name: &str, key: &str| {
            format!("thalweg receipt 2\nbox {name}\ndestination {key}\nfile a.pdf\nsize 5\n")
        };
        let key = target().port.key.to_string();
        let other = PrivateKey::from_seed(&[2; 32]).id().to_string();
        for (text, wanted) in [
            (of("taxes", &key), true),
            (of("taxes", &key).replace('\n', "\r\n"), true),
            (format!("\u{feff}{}", of("taxes", &key)), true),
            (of("taxes", &key) + "stamp altered", true),
            (of("grants", &key), false),
            (of("taxes", &other), false),
            (format!("I have got this:\n{}", of("taxes", &key)), false),
            ("thalweg receipt 2\n".to_owned(), false),
            (String::new(), false),
        ] {
            let file = dir.path().join("some name");
            fs::write(&file, &text).unwrap();
            assert_eq!(target().is_receipt(&file).unwrap(), wanted, "{text}");
        }
        fs::write(dir.path().join("data"), vec![0xff; 100_000]).unwrap();
        assert!(!target().is_receipt(&dir.path().join("data")).unwrap());
    }

    #[test]
    fn opening_a_non_file_does_not_block() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        assert!(open_data(&pipe).unwrap_err().to_string().contains("not a file"));
        let said = open_data(dir.path()).unwrap_err().to_string();
        assert!(said.contains("`tar`"), "{said}");
        let gone = open_data(&dir.path().join("gone")).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }
}
