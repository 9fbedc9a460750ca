//! What is there.

use super::{Remote, RemoteError, unexpected};
use thalweg_wire::object::{Entry, Failure, ListRequest, Reply, Request};

impl Remote {
    /// Asks what is there; `part` takes the entries as they come, parents before what is in
    /// them. Gives the paths that could not be read, and why.
    ///
    /// # Errors
    /// [`RemoteError::Refused`], [`RemoteError::Lost`].
    pub async fn list(
        &mut self,
        request: ListRequest,
        mut part: impl FnMut(Vec<Entry>),
    ) -> Result<Vec<(Vec<u8>, Failure)>, RemoteError> {
        self.ask(&Request::List(request)).await?;
        let listed = self.exchange(async |remote| {
            let listed = loop {
                match remote.message().await? {
                    Reply::Entries(entries) => part(entries),
                    Reply::Listed(unread) => break Ok(unread),
                    Reply::Failed(why) => break Err(why),
                    _ => return Err(unexpected()),
                }
            };
            remote.answered().await?;
            Ok(listed)
        });
        let listed = listed.await?;
        listed.map_err(|why| RemoteError::Refused { node: self.node.clone(), why })
    }
}
