//! Making join tokens.

use crate::{
    Caller, Database, Event, Oracle, OracleError, Refusal, limits::OPEN_TOKENS, oracle::Access,
    publish::later, store::TokenRow,
};
use std::{io, time::Duration};
use thalweg_units::format_duration;
use thalweg_wire::mesh::{Member, Role, Secret, Token, TokenReply, TokenRequest};

/// The longest that a token can be used. A token is a password: for days, not for months.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);

impl Oracle {
    /// Makes a token that lets one host join, once; keeps its hash alone.
    ///
    /// # Errors
    /// [`OracleError::Refused`] if the caller is no admin, or the request beyond the
    /// bounds; the database's.
    pub async fn create_token(
        &self,
        caller: &Caller,
        request: TokenRequest,
    ) -> Result<TokenReply, OracleError> {
        let actor = self.authorise(caller, Access::Admin)?;
        bounded(&request, &self.inner.config.database)?;
        let newest = self.newest();
        let own = newest.roster.by_key(&self.inner.node);
        let own = own.filter(|own| !own.addresses.is_empty());
        let own = own.ok_or(Refusal::NotListed(self.inner.node))?;
        let token = Token {
            mesh: self.mesh(),
            oracle: self.inner.node,
            addresses: own.addresses.clone(),
            secret: random()?,
        };
        let expires = later(self.now(), request.valid);
        let TokenRequest { mut roles, tags, name, .. } = request;
        roles.insert(Role::Client);
        let maker = actor.0.as_ref().map(Member::principal);
        let row = TokenRow { roles, tags, name, expires, maker, void: false, used_by: None };
        self.keep_token(&token.secret, &row, actor.label()).await?;
        self.tell(&Event::TokenMade { by: actor.label().to_owned() });
        Ok(TokenReply { token: token.to_string(), expires })
    }

    async fn keep_token(
        &self,
        secret: &Secret,
        row: &TokenRow,
        by: &str,
    ) -> Result<(), OracleError> {
        let mut write = self.begin().await?;
        let now = self.now();
        if write.open_tokens(now).await? >= OPEN_TOKENS {
            let why =
                format!("{OPEN_TOKENS} tokens are open, the most there can be; let some expire");
            return Err(Refusal::Full(why).into());
        }
        let members = write.members().await?;
        if !row.is_of_an_admin(&members) {
            // Revoked since it was asked who it is.
            return Err(Refusal::NotMember.into());
        }
        if let Some(name) = &row.name
            && members.iter().any(|m| m.name == *name)
        {
            return Err(Refusal::NameTaken(name.clone()).into());
        }
        write.add_token(&secret.hash(), row).await?;
        let subject = row.name.as_ref().map_or("-", |name| name.as_str());
        write.note("token", subject, by, now).await?;
        Ok(write.commit().await?)
    }
}

fn bounded(request: &TokenRequest, database: &Database) -> Result<(), Refusal> {
    if request.tags.len() > Member::MAX_TAGS {
        return Err(Refusal::Bad(format!("a member has at most {} tags", Member::MAX_TAGS)));
    }
    if request.valid.is_zero() || request.valid > LONGEST {
        let longest = format_duration(LONGEST);
        return Err(Refusal::Bad(format!(
            "a token is valid for more than 0 s and up to {longest}"
        )));
    }
    if let (true, Database::File) = (request.roles.contains(&Role::Oracle), database) {
        // It would sign rosters that this one does not know of.
        let what = "a database that oracles share: see docs/oracle.md";
        return Err(Refusal::Role { role: Role::Oracle, what });
    }
    Ok(())
}

fn random() -> Result<Secret, OracleError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| OracleError::Random(io::Error::other(error)))?;
    Ok(Secret::from_bytes(bytes))
}
