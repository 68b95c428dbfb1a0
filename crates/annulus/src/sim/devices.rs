//! Devices of hosts: the program's settings and, kept apart, the disturbances of the device.

use super::{Device, Sim};
use annulus_sim::Hosts;
use std::net::IpAddr;
use std::time::Duration;

/// How many in a thousand operations of a failing disk fail.
const ERRORS_PER_MILLE: u16 = 300;

/// The devices that have had a disturbance, or whose hosts' programs have set them.
#[derive(Default)]
pub(super) struct Devices(Vec<HostDevice>);

struct HostDevice {
    host: IpAddr,
    /// The device without disturbances.
    own: Device,
    /// The current disturbances, each with its number, in the order in which they began.
    disturbances: Vec<(u64, DeviceOverlay)>,
}

/// The effect of a disturbance on a device, on top of the program's settings.
#[derive(Clone, Copy, Debug)]
pub(super) enum DeviceOverlay {
    /// Operations take longer by this time on average.
    Slow(Duration),
    Failing,
    Full,
}

impl Devices {
    /// Sets the device of a host's disk.
    pub(super) fn set(&mut self, sim: &Sim, host: IpAddr, device: Device) {
        let entry = self.entry(sim, host);
        entry.own = device;
        entry.apply(sim);
    }

    /// Begins a disturbance.
    pub(super) fn disturb(&mut self, sim: &Sim, host: IpAddr, number: u64, what: DeviceOverlay) {
        let entry = self.entry(sim, host);
        entry.disturbances.push((number, what));
        entry.apply(sim);
    }

    /// Ends a disturbance and leaves everything else as it is.
    pub(super) fn calm(&mut self, sim: &Sim, number: u64) {
        for entry in &mut self.0 {
            entry.disturbances.retain(|(other, _)| *other != number);
            entry.apply(sim);
        }
    }

    /// Forgets a host, which has another disk now.
    pub(super) fn forget(&mut self, host: IpAddr) {
        self.0.retain(|entry| entry.host != host);
    }

    fn entry(&mut self, sim: &Sim, host: IpAddr) -> &mut HostDevice {
        let at = self.0.iter().position(|entry| entry.host == host).unwrap_or_else(|| {
            let own = sim.device_of(host);
            self.0.push(HostDevice { host, own, disturbances: Vec::new() });
            self.0.len() - 1
        });
        &mut self.0[at]
    }
}

impl HostDevice {
    /// Passes the device to the kernel.
    fn apply(&self, sim: &Sim) {
        let disturbed =
            self.disturbances.iter().fold(self.own, |device, (_, what)| what.over(device));
        sim.set_device_of(self.host, disturbed);
    }
}

impl DeviceOverlay {
    /// Returns the device with this disturbance on top.
    fn over(self, device: Device) -> Device {
        match self {
            Self::Slow(mean) => Device { jitter: device.jitter.saturating_add(mean), ..device },
            Self::Failing => Device {
                read_errors: device.read_errors.max(ERRORS_PER_MILLE),
                write_errors: device.write_errors.max(ERRORS_PER_MILLE),
                sync_errors: device.sync_errors.max(ERRORS_PER_MILLE),
                ..device
            },
            Self::Full => Device { capacity: 0, ..device },
        }
    }
}
