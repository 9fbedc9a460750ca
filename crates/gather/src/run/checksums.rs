//! Fetches hashes of sources' files, for `--checksum`.

use super::super::landing::ChecksumSource;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use thalweg_files::remote::{Remote, RemoteError};
use thalweg_mesh::member_dialer::MemberDialer;
use thalweg_wire::{
    mesh::Name,
    object::{Failure, FileRef, TransferHash},
};
use tokio::runtime::Handle;

/// Asks each source over a connection that stays open.
///
/// Its callers are threads that may block, apart from the async runtime.
#[derive(Debug)]
pub(super) struct RemoteSums {
    dialer: MemberDialer,
    names: Vec<Name>,
    open: Mutex<BTreeMap<u32, Remote>>,
    runtime: Handle,
}

impl RemoteSums {
    /// Must be called within a runtime.
    pub(super) fn new(dialer: MemberDialer, names: Vec<Name>) -> Self {
        let runtime = Handle::current();
        Self { dialer, names, open: Mutex::new(BTreeMap::new()), runtime }
    }

    async fn ask(&self, source: u32, files: &[FileRef]) -> Result<Vec<Answer>, String> {
        let kept = self.open.lock().remove(&source);
        let mut remote = match kept {
            Some(remote) => remote,
            None => {
                let name = self.names.get(source as usize).ok_or("no such source")?;
                Remote::open(&self.dialer, name, &[]).await.map_err(|e| e.to_string())?
            }
        };
        let checks = remote.check(files.to_vec()).await.map_err(|e| e.to_string())?;
        let checks = checks.into_iter().map(|check| check.map_err(failure)).collect();
        self.open.lock().insert(source, remote);
        Ok(checks)
    }
}

type Answer = Result<TransferHash, Failure>;

impl ChecksumSource for RemoteSums {
    fn sums(&self, source: u32, files: &[FileRef]) -> Vec<Answer> {
        let answers = self.runtime.block_on(self.ask(source, files));
        answers.unwrap_or_else(|why| vec![Err(Failure::System(why)); files.len()])
    }
}

fn failure(why: RemoteError) -> Failure {
    match why {
        RemoteError::Refused { why, .. } => why,
        other => Failure::System(other.to_string()),
    }
}
