//! The limit of open descriptors of this process, and the path of an open file.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{
    os::fd::{AsFd, AsRawFd as _},
    path::PathBuf,
};

/// The path of an open file in `/proc`, for calls that take only paths. It also works for `O_PATH` descriptors
/// (open(2)) and holds as long as the descriptor is open.
pub fn path_of(file: impl AsFd) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()).into()
}

/// Raises the soft limit of open descriptors to the hard one. Returns the limit that is then in effect, `u64::MAX` if
/// there is none.
///
/// A connection needs two descriptors. The soft limit is 1024 on most systems because of `select`, which nothing here
/// uses. Call it at the program's start, because the limit is that of the whole process.
pub fn raise_descriptor_limit() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: maximum, maximum };
    match setrlimit(Resource::Nofile, wanted) {
        Ok(()) => maximum.unwrap_or(u64::MAX),
        Err(_) => current.unwrap_or(u64::MAX),
    }
}
