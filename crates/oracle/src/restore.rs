//! Writing, when the database may have been put back to an older state.

use crate::{
    Event, Oracle, OracleError, Place,
    oracle::Newest,
    store::{StoreError, Write},
};
use std::sync::atomic::Ordering;
use thalweg_units::WallTime;

impl Oracle {
    /// Begins to write. A database that is behind the roster that we have signed was
    /// restored from a backup, or is new: it gets the roster's members first.
    pub(crate) async fn begin(&self) -> Result<Write<'_>, OracleError> {
        let mut write = self.inner.store.write().await?;
        let (database, newest) = (self.version_in(&mut write).await?, self.newest());
        if database < newest.roster.version {
            restore(&mut write, &newest, self.now()).await?;
            self.tell(&Event::Restored { database, copy: newest.roster.version });
        }
        Ok(write)
    }

    /// The version in the database; it must be this mesh's. An empty one of a server becomes
    /// this mesh's: it was lost, or the state moves there.
    async fn version_in(&self, write: &mut Write<'_>) -> Result<u64, OracleError> {
        let place = write.place().clone();
        match (write.mesh().await?, &place) {
            (Some(mesh), _) if mesh.mesh == self.mesh() => Ok(mesh.version),
            (Some(mesh), _) => {
                let found = format!("{:?}", mesh.mesh);
                Err(OracleError::OtherMesh { place, found })
            }
            (None, Place::File(_)) => Err(StoreError::empty(&place).into()),
            (None, Place::Server(_)) if !self.inner.fills.load(Ordering::Relaxed) => {
                Err(OracleError::Empty(place))
            }
            (None, Place::Server(_)) => {
                write.found(self.mesh()).await?;
                Ok(0)
            }
        }
    }
}

/// Makes the database's members those of the roster. Who is not in the roster was revoked
/// since the backup; open tokens may have been used since.
async fn restore(write: &mut Write<'_>, newest: &Newest, now: WallTime) -> Result<(), OracleError> {
    for member in write.members().await? {
        if newest.roster.by_name(&member.name) != Some(&member) {
            write.remove(&member.name, now).await?;
        }
    }
    let there = write.members().await?;
    for member in newest.roster.members.iter().filter(|m| !there.contains(m)) {
        write.add(member, now).await?;
    }
    write.void_tokens().await?;
    write.set_rules(&newest.roster.rules).await?;
    write.keep(newest.roster.version, &newest.bytes).await?;
    write.note("restored", "mesh", "local", now).await?;
    Ok(())
}
