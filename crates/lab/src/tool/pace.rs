//! Waits until points in time as precisely as an ordinary process can.

use std::{
    hint,
    num::NonZeroU64,
    thread,
    time::{Duration, Instant},
};

/// Sleep ends this long before the deadline, and the rest is a spin loop. On an idle host a sleeping process was
/// measured to wake up about 70 µs late at most.
const SPIN: Duration = Duration::from_micros(100);

/// Asks the kernel to wake this thread on time and not up to 50 µs later.
pub fn sharpen_timers() {
    // If this fails, waits are less precise but results stay correct: the achieved times are reported.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}

/// Sleeps until `deadline`; may wake up some ten microseconds late.
pub fn sleep_until(deadline: Instant) {
    thread::sleep(deadline.saturating_duration_since(Instant::now()));
}

/// Waits until `deadline`, spinning at the end.
pub fn wait_until(deadline: Instant) {
    let left = deadline.saturating_duration_since(Instant::now());
    if left > SPIN {
        thread::sleep(left - SPIN);
    }
    while Instant::now() < deadline {
        hint::spin_loop();
    }
}
