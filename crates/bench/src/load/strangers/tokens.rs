//! Tests one token that many hosts use.

use super::{
    super::report::Report,
    test_mesh::{TestMesh, TestNode},
};

/// The number of hosts that race.
const HOSTS: usize = 8;

/// Lets hosts race for a token and replays it; reports how many became members.
///
/// # Errors
/// When a token cannot be created.
pub fn run(report: &mut Report, test_mesh: &TestMesh, founder: &TestNode) -> anyhow::Result<()> {
    let token = founder.thalweg(&["mesh", "token"])?;
    let hosts: Result<Vec<TestNode>, _> = (0..HOSTS).map(|_| test_mesh.stranger()).collect();
    let mut racing = Vec::new();
    for (number, host) in hosts?.iter().enumerate() {
        racing.push(host.start_join(&token, &format!("race{number}"))?);
    }
    let mut winners = 0;
    for child in racing {
        winners += u32::from(child.wait_with_output()?.status.success());
    }
    report.add("raced_token_winners", "1", winners.into());
    let replay = test_mesh.stranger()?.try_join(&token, "replay")?;
    report.add("replayed_token_winners", "1", u32::from(replay.status.success()).into());
    let roster = founder.thalweg(&["mesh", "members", "--json"])?;
    let raced = roster.matches("\"race").count() + roster.matches("\"replay\"").count();
    report.add("members_by_one_token", "1", raced as f64);
    Ok(())
}
