//! Conversion between rows and values.

use data_encoding::HEXLOWER_PERMISSIVE;
use serde::{Serialize, de::DeserializeOwned};
use sqlx::{Row as _, any::AnyRow};
use std::collections::BTreeSet;
use thalweg_units::{NodeId, WallTime};
use thalweg_wire::mesh::{Member, Name, Role, Rule, Tag};

/// The one row about the mesh.
#[derive(Clone, Debug)]
pub(crate) struct MeshRow {
    /// The mesh's key.
    pub mesh: NodeId,
    /// The newest roster's version.
    pub version: u64,
    pub rules: Vec<Rule>,
    /// The newest roster, signed; empty before the first.
    pub signed: Vec<u8>,
}

/// A present or former member's key.
#[derive(Clone, Debug)]
pub(crate) struct KeyRow {
    /// The member's name.
    pub name: Name,
    /// When it was revoked.
    pub revoked: Option<WallTime>,
}

/// A token.
#[derive(Clone, Debug)]
pub(crate) struct TokenRow {
    /// The roles of the joining host.
    pub roles: BTreeSet<Role>,
    /// The tags of the joining host.
    pub tags: BTreeSet<Tag>,
    /// The name that the host must have; `None`: any.
    pub name: Option<Name>,
    pub expires: WallTime,
    /// The principal of the member that made it; `None`: a local process.
    pub maker: Option<NodeId>,
    /// Whether its maker was revoked.
    pub void: bool,
    /// The key that used it.
    pub used_by: Option<NodeId>,
}

impl TokenRow {
    /// Whether its maker may still make tokens.
    pub fn is_of_an_admin(&self, members: &[Member]) -> bool {
        let admin = |key| members.iter().any(|m| m.principal() == key && m.is(Role::Admin));
        self.maker.is_none_or(admin)
    }
}

/// The error for a column whose content this program cannot have written.
pub(super) fn unreadable(column: &'static str) -> sqlx::Error {
    sqlx::Error::ColumnDecode { index: column.into(), source: "not readable".into() }
}

/// Parses a text column as `T`.
pub(super) fn parsed<T: std::str::FromStr>(row: &AnyRow, column: &'static str) -> sqlx::Result<T> {
    row.try_get::<String, _>(column)?.parse().map_err(|_| unreadable(column))
}

fn optional<T: std::str::FromStr>(row: &AnyRow, column: &'static str) -> sqlx::Result<Option<T>> {
    let text: Option<String> = row.try_get(column)?;
    text.map(|text| text.parse().map_err(|_| unreadable(column))).transpose()
}

fn listed<T: DeserializeOwned>(row: &AnyRow, column: &'static str) -> sqlx::Result<T> {
    let text: String = row.try_get(column)?;
    serde_json::from_str(&text).map_err(|_| unreadable(column))
}

fn date(nanos: i64) -> WallTime {
    WallTime::from_unix_nanos(u64::try_from(nanos).unwrap_or(0))
}

/// A date as a column's nanoseconds, up to the year 2262.
pub(super) fn nanos(date: WallTime) -> i64 {
    i64::try_from(date.as_unix_nanos()).unwrap_or(i64::MAX)
}

/// Reads a version from its column.
pub(super) fn version(row: &AnyRow) -> sqlx::Result<u64> {
    u64::try_from(row.try_get::<i64, _>("version")?).map_err(|_| unreadable("version"))
}

/// Encodes a list as JSON text.
pub(super) fn list(value: &impl Serialize) -> sqlx::Result<String> {
    serde_json::to_string(value).map_err(|error| sqlx::Error::Encode(error.into()))
}

pub(super) fn mesh(row: &AnyRow) -> sqlx::Result<MeshRow> {
    let signed: String = row.try_get("signed")?;
    let signed = HEXLOWER_PERMISSIVE.decode(signed.as_bytes()).map_err(|_| unreadable("signed"))?;
    Ok(MeshRow {
        mesh: parsed(row, "mesh")?,
        version: version(row)?,
        rules: listed(row, "rules")?,
        signed,
    })
}

pub(super) fn member(row: &AnyRow) -> sqlx::Result<Member> {
    Ok(Member {
        name: parsed(row, "name")?,
        node: optional(row, "node")?,
        client: parsed(row, "client")?,
        addresses: listed(row, "addresses")?,
        roles: listed(row, "roles")?,
        tags: listed(row, "tags")?,
    })
}

pub(super) fn key(row: &AnyRow) -> sqlx::Result<KeyRow> {
    let revoked: Option<i64> = row.try_get("revoked")?;
    Ok(KeyRow { name: parsed(row, "name")?, revoked: revoked.map(date) })
}

pub(super) fn token(row: &AnyRow) -> sqlx::Result<TokenRow> {
    Ok(TokenRow {
        roles: listed(row, "roles")?,
        tags: listed(row, "tags")?,
        name: optional(row, "name")?,
        expires: date(row.try_get("expires")?),
        maker: optional(row, "maker")?,
        void: row.try_get::<Option<i64>, _>("voided")?.is_some(),
        used_by: optional(row, "used_by")?,
    })
}
