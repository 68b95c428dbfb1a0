//! Control messages: the options of a send, and the metadata of a receive.

use super::World;
use crate::memory::MessageHeader;
use crate::net::{Datagram, SendOptions, SocketId, credentials};
use crate::op::Ancillary;
use annulus_kernel::{
    Address, Control, ControlWriter, Controls, Direction, Ip, MAX_DESCRIPTORS_PER_MESSAGE,
    SocketOption, descriptors, space,
};
use rustix::io::Errno;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The index of the only interface.
const INTERFACE_INDEX: u32 = 1;

impl World {
    /// Reads the parts of a message other than its bytes; `None` if it has none.
    pub(super) fn ancillary(&mut self, header: &MessageHeader) -> Result<Option<Ancillary>, Errno> {
        if header.name.len() == 0 && header.control.len() == 0 {
            return Ok(None);
        }
        let to = (header.name.len() > 0).then(|| Address::from_bytes(&header.name.bytes()));
        let control = header.control.bytes();
        let options = send_options(&control)?;
        let rights = self.rights(&control)?;
        Ok(Some(Ancillary { to, control: header.control, options, rights }))
    }

    /// Returns the files of the descriptors to pass, and takes a reference to each.
    fn rights(&mut self, control: &[u8]) -> Result<Vec<u32>, Errno> {
        let named = Controls::new(control).filter_map(|control| match control {
            Control::Descriptors(bytes) => Some(bytes),
            _ => None,
        });
        let files = named.flat_map(descriptors).map(|fd| self.files.find(fd).map(|(id, _)| id));
        let files: Vec<u32> = files.collect::<Result<_, _>>()?;
        if files.len() > MAX_DESCRIPTORS_PER_MESSAGE {
            return Err(Errno::INVAL);
        }
        files.iter().for_each(|&file| self.files.hold(file));
        Ok(files)
    }

    /// Encodes the control messages of a datagram in at most `limit` bytes, and opens the
    /// descriptors passed with it. Also returns true if something did not fit.
    pub(super) fn write_controls(
        &mut self,
        socket: SocketId,
        datagram: &mut Datagram,
        limit: usize,
    ) -> (Vec<u8>, bool) {
        let mut bytes = vec![0; limit];
        let mut writer = ControlWriter::new(&mut bytes, Direction::Received);
        let controls = self.controls(socket, datagram);
        let mut cut = controls.into_iter().any(|control| !writer.push(control));
        let left = limit - writer.len();
        let fds = self.open_rights(std::mem::take(&mut datagram.rights), left, &mut cut);
        if !fds.is_empty() {
            cut |= !writer.push(Control::Descriptors(&fds));
        }
        let len = writer.len();
        bytes.truncate(len);
        (bytes, cut)
    }

    /// Returns all control messages except descriptors, in the order of Linux.
    fn controls(&self, socket: SocketId, datagram: &Datagram) -> Vec<Control<'static>> {
        let state = self.net.socket(socket);
        let options = &state.options;
        let mut controls = Vec::new();
        if options.is_on(SocketOption::Timestamps) {
            controls.push(Control::Timestamp(Duration::from_nanos(datagram.at)));
        }
        if options.is_on(SocketOption::DropCount) && datagram.drops > 0 {
            controls.push(Control::Drops(datagram.drops));
        }
        controls.extend(datagram.segment.map(Control::SegmentSize));
        if let Some((_, to)) = datagram.route {
            self.write_route(socket, to, datagram.tos, &mut controls);
        }
        if options.is_on(SocketOption::PassCredentials) && state.unix.is_some() {
            controls.push(Control::Credentials(credentials()));
        }
        controls
    }

    /// Adds the destination of a datagram and the TOS of its header.
    fn write_route(
        &self,
        socket: SocketId,
        to: SocketAddr,
        tos: u8,
        controls: &mut Vec<Control<'static>>,
    ) {
        let options = &self.net.socket(socket).options;
        let seen = self.net.address_seen_by(socket, to).ip();
        if seen.is_ipv6() && options.is_on(SocketOption::PacketInfo(Ip::V6)) {
            controls.push(Control::PacketInfo { local: seen, interface: INTERFACE_INDEX });
        }
        match to.ip() {
            IpAddr::V4(_) => {
                if options.is_on(SocketOption::PacketInfo(Ip::V4)) {
                    controls
                        .push(Control::PacketInfo { local: to.ip(), interface: INTERFACE_INDEX });
                }
                let on = options.is_on(SocketOption::RecvTos(Ip::V4));
                controls.extend(on.then_some(Control::Tos(tos)));
            }
            IpAddr::V6(_) => {
                let on = options.is_on(SocketOption::RecvTos(Ip::V6));
                controls.extend(on.then_some(Control::TrafficClass(tos)));
            }
        }
    }

    /// Opens as many passed files as fit, and closes the others.
    fn open_rights(&mut self, rights: Vec<u32>, limit: usize, cut: &mut bool) -> Vec<u8> {
        let most = limit.saturating_sub(space(0)) / size_of::<i32>();
        let mut fds = Vec::new();
        for (nth, file) in rights.into_iter().enumerate() {
            let fd = if nth < most { self.files.install(file) } else { Err(Errno::MSGSIZE) };
            if let Ok(fd) = fd {
                fds.extend(fd.to_ne_bytes());
                continue;
            }
            *cut = true;
            self.drop_file(file);
        }
        fds
    }
}

fn send_options(control: &[u8]) -> Result<SendOptions, Errno> {
    let mut options = SendOptions::default();
    for control in Controls::new(control) {
        match control {
            Control::Tos(tos) | Control::TrafficClass(tos) => options.tos = Some(tos),
            Control::PacketInfo { local, .. } => options.from = Some(local),
            Control::SegmentSize(size) => options.segment = Some(size),
            Control::Descriptors(_) | Control::Credentials(_) => {}
            _ => return Err(Errno::INVAL),
        }
    }
    Ok(options)
}
