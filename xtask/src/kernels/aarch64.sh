#!/bin/sh
# The suite of `annulus` on aarch64: built here, run on Debian's kernel in QEMU, which translates every instruction. Takes 40 minutes on two cores.
#   sh xtask/src/kernels/aarch64.sh [FILTER...]     leaves target/kernel-images/aarch64/log
# Needs apt, qemu-system-arm, gcc-aarch64-linux-gnu, busybox, mke2fs, and `rustup target add aarch64-unknown-linux-gnu`.
set -eu
cd "$(dirname "$0")/../../.."
target=aarch64-unknown-linux-gnu
place=$PWD/target/kernel-images/aarch64
libraries=/usr/aarch64-linux-gnu/lib
mkdir -p "$place/lists/partial" "$place/archives/partial"

export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc CARGO_PROFILE_DEV_DEBUG=none
suite=$(cargo test -p annulus --test suite --target $target --no-run 2>&1 | tee /dev/stderr | sed -n 's/.*Executable.*(\(.*\))$/\1/p')
suite=$(realpath "$suite") sources=$PWD/crates/annulus/src

# apt uses its own directory, for the other architecture. Nothing is installed.
cat >"$place/apt.conf" <<END
Dir::State "$place"; Dir::State::status "$place/status"; Dir::Cache "$place"; Dir::Etc::sourcelist "$place/sources.list";
Dir::Etc::sourceparts "-"; APT::Sandbox::User "root"; APT::Architecture "arm64"; APT::Architectures "arm64";
END
: >"$place/status"
key=signed-by=/usr/share/keyrings/debian-archive-keyring.gpg
for release in bookworm bookworm-backports; do
    echo "deb [$key] http://deb.debian.org/debian $release main"
done >"$place/sources.list"
export APT_CONFIG="$place/apt.conf"
apt-get update -qq
kernel=$(apt-cache search --names-only '^linux-image-6\.12\..*-cloud-arm64$' | sort -V | tail -1 | cut -d' ' -f1)
cd "$place"
rm -rf unpacked root ./*.deb
apt-get download -qq "$kernel" busybox-static
for package in ./*.deb; do
    dpkg-deb -x "$package" unpacked
done

mkdir -p root/bin root/lib root/proc root/sys root/dev root/tmp root/etc
cp unpacked/bin/busybox root/bin/
aarch64-linux-gnu-strip -o root/bin/suite "$suite"
for library in ld-linux-aarch64.so.1 libc.so.6 libm.so.6 libgcc_s.so.1; do
    cp -L "$libraries/$library" root/lib/
done
# One test reads the sources in the directory in which it was built.
mkdir -p "root/$sources"
cp -r "$sources/." "root/$sources"
find unpacked -name 'virtio_blk.ko.xz' -exec xz -dc {} \; >root/virtio_blk.ko
echo 'root:x:0:0:root:/tmp:/bin/sh' >root/etc/passwd
echo 'root:x:0:' >root/etc/group
printf '127.0.0.1 localhost\n::1 localhost\n' >root/etc/hosts
cat >root/init <<'END'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin HOME=/tmp TMPDIR=/tmp
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm /dev/pts
mount -t tmpfs shm /dev/shm
mount -t devpts pts /dev/pts
ln -s /proc/self/fd /dev/fd
insmod /virtio_blk.ko
mount -t ext4 /dev/vda /tmp
chmod 1777 /tmp
mount -t cgroup2 cgroup /sys/fs/cgroup
ifconfig lo 127.0.0.1 up
ulimit -n 65536
uname -a
cd /tmp
# Skips the tests that call cargo.
/bin/suite --skip programs:: --test-threads=6 $(sed -n 's/.*suite=\([^ ]*\).*/\1/p' /proc/cmdline | tr , ' ')
poweroff -f
END
chmod +x root/init
(cd root && find . | busybox cpio -o -H newc | gzip -1) >initrd
rm -f disk
mke2fs -q -t ext4 -F disk 4G

filter=$(echo "$*" | tr ' ' ,)
timeout 10800 qemu-system-aarch64 -M virt -cpu max -accel tcg,thread=multi -smp 2 -m 3072 -nodefaults -no-reboot -display none \
    -serial file:log -kernel unpacked/boot/vmlinuz-* -initrd initrd -drive file=disk,if=virtio,format=raw,cache=unsafe \
    -append "console=ttyAMA0 panic=-1 quiet mitigations=off suite=$filter"
rm -f disk
tail -5 log
grep -q '^test result: ok' log
