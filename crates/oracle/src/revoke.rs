//! A member is put out.

use crate::{
    Caller, Event, Oracle, OracleError, Refusal,
    oracle::{Access, Actor},
    store::Write,
};
use std::time::Duration;
use thalweg_units::{NodeId, WallTime};
use thalweg_wire::mesh::{Member, Name, RevokeReply, RevokeRequest, Role};

impl Oracle {
    /// Leaves a member out of the roster from now on, by name or by one of its keys.
    ///
    /// Its keys never join again; its name can be used by another host. Refused, without
    /// a way to force it: the caller itself, and the last member with the role oracle or
    /// admin, since nobody could undo that. The new roster is published before the answer.
    ///
    /// # Errors
    /// [`OracleError::Refused`], or the database's; nothing changed.
    pub async fn revoke(
        &self,
        caller: &Caller,
        request: RevokeRequest,
    ) -> Result<RevokeReply, OracleError> {
        let actor = self.authorise(caller, Access::Admin)?;
        let who = Who::read(&request.member);
        let mut write = self.begin().await?;
        let now = self.now();
        let members = write.members().await?;
        let Some(member) = members.iter().find(|m| who.is(m)) else {
            return Err(absent(&mut write, &who, &request.member, now).await?.into());
        };
        may_go(member, &members, &actor)?;
        write.remove(&member.name, now).await?;
        write.note("revoked", member.name.as_str(), actor.label(), now).await?;
        let newest = self.publish(write).await?;
        let (name, by) = (member.name.clone(), actor.label().to_owned());
        self.tell(&Event::Revoked { name: name.clone(), by });
        Ok(RevokeReply { name, version: newest.roster.version })
    }
}

/// How a member is called. A name is shorter than a key.
enum Who {
    Name(Name),
    Key(NodeId),
    Nobody,
}

impl Who {
    fn read(text: &str) -> Self {
        match (text.parse(), text.parse()) {
            (_, Ok(key)) => Self::Key(key),
            (Ok(name), _) => Self::Name(name),
            _ => Self::Nobody,
        }
    }

    fn is(&self, member: &Member) -> bool {
        match self {
            Self::Name(name) => member.name == *name,
            Self::Key(key) => member.holds(key),
            Self::Nobody => false,
        }
    }
}

/// Never a member, or no more: who repeats a request whose answer was lost can tell.
async fn absent(
    write: &mut Write<'_>,
    who: &Who,
    text: &str,
    now: WallTime,
) -> Result<Refusal, OracleError> {
    let row = match who {
        Who::Name(name) => write.revoked(name).await?,
        Who::Key(key) => write.key(key).await?,
        Who::Nobody => None,
    };
    let dated = row.and_then(|row| Some((row.name, row.revoked?)));
    let Some((name, at)) = dated else {
        let shown = text.chars().take(64).flat_map(char::escape_debug).collect();
        return Ok(Refusal::UnknownMember(shown));
    };
    let seconds = now.as_unix_nanos().saturating_sub(at.as_unix_nanos()) / 1_000_000_000;
    Ok(Refusal::AlreadyRevoked { name, ago: Duration::from_secs(seconds) })
}

fn may_go(member: &Member, members: &[Member], actor: &Actor) -> Result<(), Refusal> {
    for role in [Role::Oracle, Role::Admin].into_iter().filter(|role| member.is(*role)) {
        let another = members.iter().any(|m| m.is(role) && m.name != member.name);
        if !another {
            return Err(Refusal::Last { name: member.name.clone(), role });
        }
    }
    match &actor.0 {
        Some(own) if own.name == member.name => Err(Refusal::Yourself(own.name.clone())),
        _ => Ok(()),
    }
}
