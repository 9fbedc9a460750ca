//! Measures the times of rankings and orders.

use super::world::SyntheticMesh;
use crate::load::report::Report;
use std::time::Duration;
use thalweg_oracle::Oracle;
use tokio::task::{block_in_place, spawn_blocking};

/// New legs per ranking, more than a mesh measures per second in the default settings: 16 at once, of 1 to 5 s.
const NEWS: usize = 16;

/// Times rankings of two kinds: whole ones of all legs of the table, and incremental ones with as many new legs as a
/// mesh measures in a second.
///
/// # Errors
/// When a ranking dies.
pub async fn time_rankings(
    oracle: &Oracle,
    world: &mut SyntheticMesh,
    times: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    let (mut whole, mut next, mut legs) = (vec![], vec![], 0);
    for _ in 0..times.max(1) {
        let (measured, took) = time_once(oracle).await?;
        whole.push(took.as_secs_f64());
        let (news, after) = (world.legs(NEWS), oracle.clone());
        let took = spawn_blocking(move || after.rank_next_timed(news)).await?;
        next.push(took.as_secs_f64());
        legs = measured;
    }
    for times in [&mut whole, &mut next] {
        times.sort_by(f64::total_cmp);
    }
    let (middle, last) = (whole.len() / 2, whole.len() - 1);
    thalweg_console::note!(
        "ranked {legs} legs in {:.3} s, {NEWS} new ones in {:.3} s",
        whole[middle],
        next[middle]
    );
    report.add("legs", "1", legs as f64);
    report.add("rank", "s", whole[middle]);
    report.add("rank_worst", "s", whole[last]);
    report.add("rank_next", "s", next[middle]);
    report.add("rank_next_worst", "s", next[last]);
    Ok(())
}

/// Times one whole ranking; returns the number of its legs, too.
async fn time_once(oracle: &Oracle) -> anyhow::Result<(usize, Duration)> {
    let oracle = oracle.clone();
    Ok(spawn_blocking(move || oracle.rank_timed()).await?)
}

/// Times `looks` searches for the next order.
///
/// # Errors
/// When the schedule dies.
pub async fn time_orders(oracle: &Oracle, looks: usize, report: &mut Report) -> anyhow::Result<()> {
    let oracle = oracle.clone();
    let (first, mut times) = spawn_blocking(move || oracle.orders_timed(looks)).await?;
    times.sort();
    let mean = times.iter().sum::<Duration>().as_secs_f64() / times.len().max(1) as f64;
    let worst = times.last().copied().unwrap_or_default();
    thalweg_console::note!(
        "{} orders, {:.2} ms each, {worst:.1?} at most; {first:.1?} the first look",
        times.len(),
        1e3 * mean
    );
    report.add("orders", "1", times.len() as f64);
    report.add("order", "ms", 1e3 * mean);
    report.add("order_worst", "ms", 1e3 * worst.as_secs_f64());
    report.add("order_first", "ms", 1e3 * first.as_secs_f64());
    Ok(())
}

/// Repeatedly adds a tenth of the first legs until a whole ranking takes more than a second or the table is full.
///
/// # Errors
/// When a ranking dies.
pub async fn find_limit(
    oracle: &Oracle,
    world: &mut SyntheticMesh,
    step: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    let (mut within, mut took_last) = (0, 0.0);
    loop {
        let (legs, took) = time_once(oracle).await?;
        let is_full = legs <= within;
        if took.as_secs_f64() > super::SECOND || is_full {
            thalweg_console::note!("{legs} legs in {:.3} s; {within} before", took.as_secs_f64());
            report.add("legs_within_a_second", "1", within as f64);
            report.add("rank_at_limit", "s", took_last);
            report.add("table_full", "1", f64::from(u8::from(is_full)));
            report.add("memory_at_limit", "MiB", super::peak_memory()?);
            return Ok(());
        }
        (within, took_last) = (legs, took.as_secs_f64());
        oracle.assume(block_in_place(|| world.legs(step.div_ceil(10)))).await;
    }
}
