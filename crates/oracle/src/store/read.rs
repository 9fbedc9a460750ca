//! What is asked of the database; inside a transaction and outside.

use super::{
    KeyRow, MeshRow, Store, StoreError, TokenRow,
    row::{self, nanos},
};
use data_encoding::HEXLOWER;
use sqlx::AnyConnection;
use thalweg_units::{NodeId, WallTime};
use thalweg_wire::mesh::{Member, Name};
use tokio::time::timeout;

type Result<T> = sqlx::Result<T>;

pub(super) async fn mesh(db: &mut AnyConnection) -> Result<Option<MeshRow>> {
    let statement = "SELECT mesh, version, rules, signed FROM mesh WHERE id = 1";
    let found = sqlx::query(statement).fetch_optional(db).await?;
    found.as_ref().map(row::mesh).transpose()
}

pub(super) async fn version(db: &mut AnyConnection) -> Result<Option<u64>> {
    let found = sqlx::query("SELECT version FROM mesh WHERE id = 1").fetch_optional(db).await?;
    found.as_ref().map(row::version).transpose()
}

/// Sorted by name here, as databases differ in how they compare text.
pub(super) async fn members(db: &mut AnyConnection) -> Result<Vec<Member>> {
    let statement = "SELECT name, node, client, addresses, roles, tags FROM members";
    let found = sqlx::query(statement).fetch_all(db).await?;
    let mut members = found.iter().map(row::member).collect::<Result<Vec<_>>>()?;
    members.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(members)
}

pub(super) async fn token(db: &mut AnyConnection, hash: &[u8; 32]) -> Result<Option<TokenRow>> {
    let statement = "SELECT roles, tags, name, expires, maker, voided, used_by \
                     FROM tokens WHERE hash = $1";
    let found = sqlx::query(statement).bind(HEXLOWER.encode(hash)).fetch_optional(db).await?;
    found.as_ref().map(row::token).transpose()
}

pub(super) async fn key(db: &mut AnyConnection, key: &NodeId) -> Result<Option<KeyRow>> {
    let statement = "SELECT name, revoked FROM keys WHERE key = $1";
    let found = sqlx::query(statement).bind(key.to_string()).fetch_optional(db).await?;
    found.as_ref().map(row::key).transpose()
}

/// The last revoked key of a name.
pub(super) async fn revoked(db: &mut AnyConnection, name: &Name) -> Result<Option<KeyRow>> {
    let statement = "SELECT name, revoked FROM keys \
                     WHERE name = $1 AND revoked IS NOT NULL ORDER BY revoked DESC LIMIT 1";
    let found = sqlx::query(statement).bind(name.as_str()).fetch_optional(db).await?;
    found.as_ref().map(row::key).transpose()
}

pub(super) async fn open_tokens(db: &mut AnyConnection, now: WallTime) -> Result<u64> {
    let statement = "SELECT COUNT(*) FROM tokens \
                     WHERE used_by IS NULL AND voided IS NULL AND expires > $1";
    let count: i64 = sqlx::query_scalar(statement).bind(nanos(now)).fetch_one(db).await?;
    Ok(u64::try_from(count).unwrap_or(0))
}

impl Store {
    /// The row about the mesh; none in a database that was never filled.
    pub async fn mesh(&self) -> std::result::Result<Option<MeshRow>, StoreError> {
        let mut line = self.line().await?;
        let asked = timeout(line.limit, mesh(line.ask())).await;
        line.told(asked)
    }

    /// The newest roster's version; none in a database that was never filled.
    pub async fn version(&self) -> std::result::Result<Option<u64>, StoreError> {
        let mut line = self.line().await?;
        let asked = timeout(line.limit, version(line.ask())).await;
        line.told(asked)
    }

    /// The key that is or was a member's.
    pub async fn key(&self, id: &NodeId) -> std::result::Result<Option<KeyRow>, StoreError> {
        let mut line = self.line().await?;
        let asked = timeout(line.limit, key(line.ask(), id)).await;
        line.told(asked)
    }

    /// The token with this hash.
    pub async fn token(
        &self,
        hash: &[u8; 32],
    ) -> std::result::Result<Option<TokenRow>, StoreError> {
        let mut line = self.line().await?;
        let asked = timeout(line.limit, token(line.ask(), hash)).await;
        line.told(asked)
    }
}
