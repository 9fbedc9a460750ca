//! Measures the cost of coding a block on one core: the pipeline of `thalweg-fountain`, and the crate `raptorq` alone
//! on the same symbols, in turn.

use super::report::Report;
use anyhow::{Context as _, bail, ensure};
use rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use raptorq::{
    EncodingPacket, ObjectTransmissionInformation, PayloadId, SourceBlockDecoder,
    SourceBlockEncoder, SourceBlockEncodingPlan,
};
use std::{
    cell::RefCell,
    convert::Infallible,
    fs, hint,
    ops::Range,
    time::{Duration, Instant},
};
use thalweg_fountain::{
    Geometry, SymbolId,
    codec::{
        AcceptOutcome, Assembly, BlockEncoder, EncodingPlan, PlanCache, SolveOutcome, SymbolStore,
    },
    digest::{ObjectHasher, SourcePage},
};
use thalweg_units::parse_duration;

/// Repair symbols beyond the lost ones, so that nearly every solve succeeds at once.
const BEYOND: u32 = 2;

/// The largest symbol that the crate accepts, bytes.
const MAX_CRATE_SYMBOL: u32 = 32 << 10;

/// Arguments of `thalweg-bench load codec`.
#[derive(clap::Args)]
pub struct Args {
    /// Bytes of a symbol (S): a power of two
    #[arg(long, default_value_t = 16384)]
    symbol_bytes: u32,
    /// Source symbols of a block (K): whole MiB
    #[arg(long, default_value_t = 512)]
    block_symbols: u32,
    /// Percentage of source symbols that are lost
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100))]
    lost: u32,
    /// Duration of each measurement
    #[arg(long = "for", value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    span: Duration,
    /// Seed of the block's random bytes
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// One block with its encoded symbols.
struct Block {
    geometry: Geometry,
    bytes: Vec<u8>,
    page: SourcePage,
    plan: EncodingPlan,
    source: Vec<(SymbolId, Vec<u8>)>,
    /// The received symbols: source symbols that were not lost, and repair symbols in place of the others.
    arrives: Vec<(SymbolId, Vec<u8>)>,
    store: RefCell<Flat>,
}

/// A store of one block in memory that is allocated already, as pages of a file would be.
struct Flat {
    size: usize,
    symbols: Vec<u8>,
}

impl Flat {
    fn place(&self, id: SymbolId, length: usize) -> Range<usize> {
        let start = id.esi as usize * self.size;
        start..start + length
    }
}

impl SymbolStore for Flat {
    type Error = Infallible;

    fn write(&mut self, id: SymbolId, bytes: &[u8]) -> Result<(), Infallible> {
        let place = self.place(id, bytes.len());
        self.symbols[place].copy_from_slice(bytes);
        Ok(())
    }

    fn read(&mut self, id: SymbolId, bytes: &mut [u8]) -> Result<(), Infallible> {
        bytes.copy_from_slice(&self.symbols[self.place(id, bytes.len())]);
        Ok(())
    }

    fn read_part(
        &mut self,
        id: SymbolId,
        length: usize,
        part: Range<usize>,
        bytes: &mut Vec<u8>,
    ) -> Result<(), Infallible> {
        bytes.extend_from_slice(&self.symbols[self.place(id, length)][part]);
        Ok(())
    }

    fn discard(&mut self, _block: u32) -> Result<(), Infallible> {
        Ok(())
    }
}

/// Measures and prints the report.
///
/// # Errors
/// When there is no such code or the solved block has wrong bytes.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let block = Block::new(args)?;
    let mut report = Report::default();
    // This comes first, while the process has not used more memory yet.
    report.add("solve_memory", "MiB", block.solve_memory()?);
    block.report_encoding(args.span, &mut report)?;
    block.report_decoding(args.span, &mut report)?;
    block.report_without_loss(args.span, &mut report)?;
    report.print().context("cannot print the report")
}

impl Block {
    fn new(args: &Args) -> anyhow::Result<Self> {
        let (size, k) = (args.symbol_bytes, args.block_symbols);
        let length = u64::from(size) * u64::from(k);
        let geometry = Geometry::new(length, size, k, k + BEYOND)?;
        let mut bytes = vec![0; usize::try_from(length)?];
        Xoshiro256PlusPlus::seed_from_u64(args.seed).fill_bytes(&mut bytes);
        let plan =
            PlanCache::new().get(k).context("there is no code for this number of symbols")?;
        let source = bytes.chunks(size as usize).map(<[u8]>::to_vec);
        let source: Vec<_> = (0..).map(|esi| SymbolId { block: 0, esi }).zip(source).collect();
        let page = page(geometry, &bytes).context("cannot compute the page of hashes")?;
        // The bytes are not zero, so that their pages are allocated.
        let symbols = vec![1; bytes.len() + geometry.repair_symbols() as usize * size as usize];
        let store = RefCell::new(Flat { size: size as usize, symbols });
        let arrives = Vec::new();
        let mut block = Self { geometry, bytes, page, plan, source, arrives, store };
        let lost = (k * args.lost / 100).max(1);
        block.arrives = block.source[lost as usize..].to_vec();
        let repair = block.encode(k..k + lost + BEYOND)?;
        block.arrives.extend((k..).map(|esi| SymbolId { block: 0, esi }).zip(repair));
        Ok(block)
    }

    fn encode(&self, esis: Range<u32>) -> anyhow::Result<Vec<Vec<u8>>> {
        Ok(BlockEncoder::new(&self.geometry, 0, &self.bytes, &self.plan)?.repair(esis))
    }

    /// Does a receiver's work for the symbols, with or without the page of hashes; returns the number of solves.
    fn receive(
        &self,
        symbols: &[(SymbolId, Vec<u8>)],
        page: Option<&SourcePage>,
    ) -> anyhow::Result<u32> {
        let (mut assembly, store) = (Assembly::new(self.geometry), &mut *self.store.borrow_mut());
        let mut solves = 0;
        for (id, bytes) in symbols {
            if assembly.accept(*id, bytes, store)? != AcceptOutcome::Ready {
                continue;
            }
            let solve = assembly.solve(id.block).context("the decoder is not ready to solve")?;
            let outcome = solve.run(store, page)?;
            assembly.record_solve(&solve, outcome, store)?;
            solves += 1;
        }
        ensure!(assembly.is_complete(), "the block could not be solved");
        ensure!(store.symbols.starts_with(&self.bytes), "the solved block has wrong bytes");
        Ok(solves)
    }

    /// Memory that one solve takes, MiB; NaN if the kernel cannot reset the peak.
    fn solve_memory(&self) -> anyhow::Result<f64> {
        let (mut assembly, store) = (Assembly::new(self.geometry), &mut *self.store.borrow_mut());
        for (id, bytes) in &self.arrives {
            assembly.accept(*id, bytes, store)?;
        }
        let solve = assembly.solve(0).context("the decoder is not ready to solve")?;
        if fs::write("/proc/self/clear_refs", "5").is_err() {
            return Ok(f64::NAN);
        }
        let before = memory("VmRSS:")?;
        match solve.run(store, Some(&self.page))? {
            SolveOutcome::Recovered(_) => Ok(memory("VmHWM:")? - before),
            SolveOutcome::TooFew => bail!("this block needs more symbols; use another --seed"),
        }
    }

    fn report_encoding(&self, span: Duration, report: &mut Report) -> anyhow::Result<()> {
        let k = self.geometry.block_symbols();
        let ours = || self.encode(k..k + k / 4).map(hint::black_box).map(|_| ());
        let plan = SourceBlockEncodingPlan::generate(u16::try_from(k)?);
        let alone = || {
            let encoder =
                SourceBlockEncoder::with_encoding_plan(0, &self.description(), &self.bytes, &plan);
            hint::black_box(encoder.repair_packets(0, k / 4));
            Ok(())
        };
        self.report_pair("encode", span, ours, alone, report)?;
        let encoder = BlockEncoder::new(&self.geometry, 0, &self.bytes, &self.plan)?;
        let emit = || {
            hint::black_box(encoder.repair(k..2 * k));
            Ok(())
        };
        report.add("emit", "Gbit/s", self.gbps(span, emit)?);
        Ok(())
    }

    fn report_decoding(&self, span: Duration, report: &mut Report) -> anyhow::Result<()> {
        let verified = || self.receive(&self.arrives, Some(&self.page)).map(|_| ());
        let ours = || self.receive(&self.arrives, None).map(|_| ());
        let alone = || {
            let packet = |(id, bytes): &(SymbolId, Vec<u8>)| {
                EncodingPacket::new(PayloadId::new(0, id.esi), bytes.clone())
            };
            let length = self.geometry.length();
            let mut decoder = SourceBlockDecoder::new(0, &self.description(), length);
            let k = self.geometry.block_symbols() as usize;
            // First as many symbols as our receiver begins to solve with, then the rest.
            let first = decoder.decode(self.arrives[..k].iter().map(packet));
            let solved = first.or_else(|| decoder.decode(self.arrives[k..].iter().map(packet)));
            ensure!(
                solved.is_some_and(|block| block == self.bytes),
                "the crate's solved block differs"
            );
            Ok(())
        };
        self.report_pair("decode", span, ours, alone, report)?;
        self.report_pair("decode_verified", span, verified, alone, report)
    }

    /// Reports the rate of a receiver that loses no symbol.
    fn report_without_loss(&self, span: Duration, report: &mut Report) -> anyhow::Result<()> {
        report.add("solves_without_loss", "", f64::from(self.receive(&self.source, None)?));
        let rate = self.gbps(span, || self.receive(&self.source, None).map(|_| ()))?;
        report.add("receive_without_loss", "Gbit/s", rate);
        let verify = || {
            for (id, bytes) in &self.source {
                self.page.verify(&self.geometry, *id, bytes)?;
            }
            Ok(())
        };
        report.add("verify", "Gbit/s", self.gbps(span, verify)?);
        Ok(())
    }

    /// Reports the rates of our work and the crate's, measured in turn by tenths of the time, and their ratio; only
    /// ours if the crate does not accept such symbols.
    fn report_pair(
        &self,
        name: &str,
        span: Duration,
        ours: impl Fn() -> anyhow::Result<()>,
        alone: impl Fn() -> anyhow::Result<()>,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        let (mut sums, possible) = ([0.0; 2], self.geometry.symbol_bytes() <= MAX_CRATE_SYMBOL);
        for _ in 0..10 {
            sums[0] += self.gbps(span / 10, &ours)? / 10.0;
            if possible {
                sums[1] += self.gbps(span / 10, &alone)? / 10.0;
            }
        }
        report.add(name, "Gbit/s", sums[0]);
        if possible {
            report.add(format!("{name}_alone"), "Gbit/s", sums[1]);
            report.add(format!("{name}_ratio"), "", sums[0] / sums[1]);
        }
        Ok(())
    }

    /// The rate of the work in bits of blocks, Gbit/s.
    fn gbps(&self, span: Duration, work: impl Fn() -> anyhow::Result<()>) -> anyhow::Result<f64> {
        let (begin, mut blocks) = (Instant::now(), 0_u32);
        while blocks == 0 || begin.elapsed() < span {
            work()?;
            blocks += 1;
        }
        let bits = f64::from(blocks) * self.bytes.len() as f64 * 8.0;
        Ok(bits / begin.elapsed().as_secs_f64() / 1e9)
    }

    fn description(&self) -> ObjectTransmissionInformation {
        let size = u16::try_from(self.geometry.symbol_bytes()).unwrap_or(u16::MAX);
        ObjectTransmissionInformation::new(self.geometry.length(), size, 1, 1, 1)
    }
}

fn page(geometry: Geometry, bytes: &[u8]) -> Option<SourcePage> {
    let mut first = None;
    let mut hasher = ObjectHasher::new(geometry);
    hasher.update(bytes, &mut |page| first = Some(page));
    hasher.finish(&mut |page| first = Some(page));
    first
}

/// A line of the process's status, MiB.
fn memory(name: &str) -> anyhow::Result<f64> {
    let status = fs::read_to_string("/proc/self/status").context("cannot read the memory usage")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line
        .and_then(|line| line.trim().strip_suffix(" kB"))
        .context("the kernel does not report this value")?;
    Ok(kib.parse::<f64>().context("the kernel's value is not a number")? / 1024.0)
}
