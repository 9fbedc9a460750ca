//! A write transaction on the mesh.

use super::{
    DatabaseName, KeyRow, MeshRow, Query, Store, StoreError, TokenRow, read,
    row::{list, nanos},
    session::Session,
};
use data_encoding::HEXLOWER;
use thalweg_units::{NodeId, WallTime};
use thalweg_wire::mesh::{Member, Name, Rule};
use tokio::{sync::MutexGuard, time::timeout};

type Result<T> = std::result::Result<T, StoreError>;

/// A write transaction, the only one at a time; rolled back unless committed.
pub(crate) struct Write<'a> {
    store: &'a Store,
    session: Session,
    _turn: MutexGuard<'a, ()>,
}

impl<'a> Write<'a> {
    pub(super) async fn begin(store: &'a Store, turn: MutexGuard<'a, ()>) -> Result<Self> {
        let mut session = store.session().await?;
        session.begin().await?;
        // The first statement writes, so the lock is taken before anything is read.
        session.run(sqlx::query("UPDATE mesh SET id = 1 WHERE id = 1")).await?;
        Ok(Self { store, session, _turn: turn })
    }

    fn encoded<T>(&self, encoded: sqlx::Result<T>) -> Result<T> {
        self.session.encoded(encoded)
    }

    async fn run(&mut self, query: Query<'_>) -> Result<u64> {
        self.session.run(query).await
    }

    /// The database for messages, without its password.
    pub fn place(&self) -> &DatabaseName {
        self.store.place()
    }

    /// The state of the mesh; `None` in a new database.
    pub async fn mesh(&mut self) -> Result<Option<MeshRow>> {
        let asked = timeout(self.session.limit, read::mesh(self.session.start())).await;
        self.session.finish(asked)
    }

    /// The members that are not revoked.
    pub async fn members(&mut self) -> Result<Vec<Member>> {
        let asked = timeout(self.session.limit, read::members(self.session.start())).await;
        self.session.finish(asked)
    }

    /// The join token with this hash.
    pub async fn token(&mut self, hash: &[u8; 32]) -> Result<Option<TokenRow>> {
        let asked = timeout(self.session.limit, read::token(self.session.start(), hash)).await;
        self.session.finish(asked)
    }

    /// What is known of this key, also if it was revoked.
    pub async fn key(&mut self, key: &NodeId) -> Result<Option<KeyRow>> {
        let asked = timeout(self.session.limit, read::key(self.session.start(), key)).await;
        self.session.finish(asked)
    }

    /// The most recently revoked key of a name.
    pub async fn revoked(&mut self, name: &Name) -> Result<Option<KeyRow>> {
        let asked = timeout(self.session.limit, read::revoked(self.session.start(), name)).await;
        self.session.finish(asked)
    }

    /// The number of tokens that can still be used.
    pub async fn open_tokens(&mut self, now: WallTime) -> Result<u64> {
        let asked = timeout(self.session.limit, read::open_tokens(self.session.start(), now)).await;
        self.session.finish(asked)
    }

    /// Creates the mesh's row in a new database.
    pub async fn found(&mut self, mesh: NodeId) -> Result<()> {
        let statement =
            "INSERT INTO mesh (id, mesh, version, rules, signed) VALUES (1, $1, 0, '[]', '')";
        self.run(sqlx::query(statement).bind(mesh.to_string())).await.map(drop)
    }

    /// Stores the newest roster.
    pub async fn keep(&mut self, version: u64, signed: &[u8]) -> Result<()> {
        let version = i64::try_from(version).unwrap_or(i64::MAX);
        let statement = "UPDATE mesh SET version = $1, signed = $2 WHERE id = 1";
        self.run(sqlx::query(statement).bind(version).bind(HEXLOWER.encode(signed))).await.map(drop)
    }

    /// Replaces all rules.
    pub async fn set_rules(&mut self, rules: &[Rule]) -> Result<()> {
        let rules = self.encoded(list(&rules))?;
        self.run(sqlx::query("UPDATE mesh SET rules = $1 WHERE id = 1").bind(rules)).await.map(drop)
    }

    /// Adds a member and its keys. Keys of it that were revoked become valid again.
    pub async fn add(&mut self, member: &Member, now: WallTime) -> Result<()> {
        let statement = "INSERT INTO members (name, node, client, addresses, roles, tags, joined) \
                         VALUES ($1, $2, $3, $4, $5, $6, $7)";
        let query = sqlx::query(statement)
            .bind(member.name.as_str().to_owned())
            .bind(member.node.map(|key| key.to_string()))
            .bind(member.client.to_string())
            .bind(self.encoded(list(&member.addresses))?)
            .bind(self.encoded(list(&member.roles))?)
            .bind(self.encoded(list(&member.tags))?)
            .bind(nanos(now));
        self.run(query).await?;
        for key in member.node.into_iter().chain([member.client]) {
            self.add_key(key, &member.name).await?;
        }
        Ok(())
    }

    /// Replaces the member's addresses.
    pub async fn set_addresses(&mut self, member: &Member) -> Result<()> {
        let query = sqlx::query("UPDATE members SET addresses = $1 WHERE name = $2")
            .bind(self.encoded(list(&member.addresses))?)
            .bind(member.name.as_str().to_owned());
        self.run(query).await.map(drop)
    }

    async fn add_key(&mut self, key: NodeId, name: &Name) -> Result<()> {
        let statement = "INSERT INTO keys (key, name) VALUES ($1, $2) \
                         ON CONFLICT (key) DO UPDATE SET name = excluded.name, revoked = NULL";
        let query = sqlx::query(statement).bind(key.to_string()).bind(name.as_str().to_owned());
        self.run(query).await.map(drop)
    }

    /// Removes a member, marks its keys as revoked, and voids its open tokens, with which it could otherwise join
    /// again.
    pub async fn remove(&mut self, name: &Name, now: WallTime) -> Result<()> {
        let name = name.as_str();
        self.run(sqlx::query("DELETE FROM members WHERE name = $1").bind(name.to_owned())).await?;
        let statement = "UPDATE tokens SET voided = $1 \
                         WHERE used_by IS NULL AND voided IS NULL AND maker IN \
                         (SELECT key FROM keys WHERE name = $2 AND revoked IS NULL)";
        self.run(sqlx::query(statement).bind(nanos(now)).bind(name.to_owned())).await?;
        let statement = "UPDATE keys SET revoked = $1 WHERE name = $2 AND revoked IS NULL";
        self.run(sqlx::query(statement).bind(nanos(now)).bind(name.to_owned())).await.map(drop)
    }

    /// Adds a join token; only its hash is stored.
    pub async fn add_token(&mut self, hash: &[u8; 32], token: &TokenRow) -> Result<()> {
        let statement = "INSERT INTO tokens (hash, roles, tags, name, expires, maker) \
                         VALUES ($1, $2, $3, $4, $5, $6)";
        let query = sqlx::query(statement)
            .bind(HEXLOWER.encode(hash))
            .bind(self.encoded(list(&token.roles))?)
            .bind(self.encoded(list(&token.tags))?)
            .bind(token.name.as_ref().map(|name| name.as_str().to_owned()))
            .bind(nanos(token.expires))
            .bind(token.maker.map(|key| key.to_string()));
        self.run(query).await.map(drop)
    }

    /// Marks the token as used by `key`. Returns false if it was not free.
    pub async fn use_token(&mut self, hash: &[u8; 32], key: NodeId, now: WallTime) -> Result<bool> {
        let statement = "UPDATE tokens SET used_by = $1, used_at = $2 \
                         WHERE hash = $3 AND used_by IS NULL AND voided IS NULL";
        let query = sqlx::query(statement)
            .bind(key.to_string())
            .bind(nanos(now))
            .bind(HEXLOWER.encode(hash));
        self.run(query).await.map(|changed| changed == 1)
    }

    /// Deletes all open tokens.
    pub async fn void_tokens(&mut self) -> Result<()> {
        self.run(sqlx::query("DELETE FROM tokens WHERE used_by IS NULL")).await.map(drop)
    }

    /// Deletes tokens that expired before `tokens`, and events before `events`.
    pub async fn prune(&mut self, tokens: WallTime, events: WallTime) -> Result<()> {
        self.run(sqlx::query("DELETE FROM tokens WHERE expires < $1").bind(nanos(tokens))).await?;
        self.run(sqlx::query("DELETE FROM events WHERE happened < $1").bind(nanos(events)))
            .await
            .map(drop)
    }

    /// Records an event with its subject and its actor.
    pub async fn note(
        &mut self,
        event: &'static str,
        subject: &str,
        actor: &str,
        now: WallTime,
    ) -> Result<()> {
        let statement =
            "INSERT INTO events (happened, event, subject, actor) VALUES ($1, $2, $3, $4)";
        let query = sqlx::query(statement)
            .bind(nanos(now))
            .bind(event)
            .bind(subject.to_owned())
            .bind(actor.to_owned());
        self.run(query).await.map(drop)
    }

    /// Makes the changes permanent; without this call, nothing is changed.
    pub async fn commit(self) -> Result<()> {
        self.session.commit().await
    }
}
