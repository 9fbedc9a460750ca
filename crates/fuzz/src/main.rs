//! Packs and unpacks corpora, and lists the targets; used by `scripts/fuzz`.

use std::{env, fs, path::Path, process::ExitCode};

const USAGE: &str = "thalweg-fuzz list | pack DIRECTORY CORPUS | unpack CORPUS DIRECTORY";

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match run(&args).and_then(|text| thalweg_console::say(&text).map_err(|why| why.to_string())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            thalweg_console::note!("thalweg-fuzz: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[&str]) -> Result<String, String> {
    let failed = |path: &str| {
        let path = path.to_owned();
        move |why: std::io::Error| format!("{path}: {why}")
    };
    match args {
        ["list"] => Ok(thalweg_fuzz::TARGETS.iter().map(|one| format!("{}\n", one.name)).collect()),
        ["pack", directory, corpus] => {
            let count = thalweg_fuzz::pack(Path::new(directory), Path::new(corpus));
            Ok(format!("{}\n", count.map_err(failed(directory))?))
        }
        ["unpack", corpus, directory] => {
            let inputs = thalweg_fuzz::unpack(Path::new(corpus)).map_err(failed(corpus))?;
            for (number, input) in inputs.iter().enumerate() {
                let file = Path::new(directory).join(format!("corpus-{number}"));
                fs::write(file, input).map_err(failed(directory))?;
            }
            Ok(format!("{}\n", inputs.len()))
        }
        _ => Err(USAGE.to_owned()),
    }
}
