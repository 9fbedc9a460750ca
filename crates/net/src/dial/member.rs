//! A channel to a member itself, by a route of relays.

use super::{
    Cause, DialError, Dialer, Entered, Step, Toward,
    turns::{Patience, Turns},
};
use crate::{
    Hop, Route, Stream,
    channel::{Channel, Protocol},
    transport::Transport,
};
use futures_util::future::BoxFuture;
use tokio::time::Instant;

impl Dialer {
    /// A channel of this protocol to the member `to`, by `route`; TLS is between its two ends,
    /// whatever the relays' legs are.
    ///
    /// `to` is the member as it would be a hop: its key, all its addresses, its name; its
    /// terms are not used. The last relay is told the member's key as the next node, so that
    /// it lets the connection pass although no other of its rules might; it sends the preamble.
    ///
    /// Directly the member's addresses race as those of a name do (RFC 8305); through relays
    /// they are tried in turn, each with its share of the deadline, which holds for all of it.
    /// That the member does not admit us may show only at the first read
    /// ([`crate::channel::ChannelError::is_not_admitted`]).
    ///
    /// # Errors
    /// [`DialError`]: which host failed, and how.
    pub async fn channel(
        &self,
        route: &Route,
        to: &Hop,
        protocol: Protocol,
    ) -> Result<Channel<Stream>, DialError> {
        let opened = self.channel_by(route, to, protocol).await;
        let (channel, at) = opened.map_err(|error| error.named_by(route))?;
        Ok(channel.map_io(|leg| Stream::new(leg, route.clone(), at)))
    }

    /// Boxed, so that it is compiled here once and not in each crate that dials.
    #[inline(never)]
    fn channel_by<'a>(
        &'a self,
        route: &'a Route,
        to: &'a Hop,
        protocol: Protocol,
    ) -> BoxFuture<'a, Result<(Channel<Transport>, crate::Destination), DialError>> {
        Box::pin(async move {
            self.check(route)?;
            let until = Instant::now() + self.options().deadline;
            if route.is_direct() {
                let patience = Patience::share(until, 0);
                let entered = self.enter_first(patience, to, route.interface(), protocol).await?;
                return Ok((entered.channel(to)?, to.relay.clone()));
            }
            let way: Vec<Hop> = route.hops().iter().chain([to]).cloned().collect();
            let mut turns = Turns::of(&way);
            loop {
                let patience = Patience::share(until, turns.left());
                let at = turns.address(route.hops().len()).unwrap_or(&to.relay).clone();
                let toward = Toward { at: &at, node: to.key() };
                let opened = async {
                    let leg = self.dial_by(patience, &turns, route, toward).await?;
                    let entering = self.enter(leg, to, protocol);
                    patience.wait(Step::reach(&at, false), entering).await?.channel(to)
                };
                match opened.await {
                    Err(error) if turns.advance(&error) => {}
                    done => return Ok((done?, at)),
                }
            }
        })
    }
}

impl Entered {
    /// The channel; a hop without a key has none.
    fn channel(self, to: &Hop) -> Result<Channel<Transport>, DialError> {
        match self {
            Self::Mesh(channel) => Ok(*channel),
            Self::Socks(_) => Err(Step::reach(&to.relay, false).failed(Cause::NoIdentity)),
        }
    }
}
