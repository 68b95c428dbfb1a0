#!/bin/busybox sh
# The first process of the machine: mounts the shared files and runs run.sh in the files of the host.
# With annulus.probe on the kernel command line, it only reports that it has started.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t devtmpfs dev /dev

stop() {
    echo "annulus: $1"
    poweroff -f
}

grep -q annulus.probe /proc/cmdline && stop "alive"

while read -r module; do
    insmod "/modules/$module" || echo "annulus: no module $module"
done </modules/order

# An overlay: the lower layer has the files of the host, read only; the upper layer is an empty disk for writes.
shared=trans=virtio,version=9p2000.L,msize=512000
mkdir -p /results /below /above /root
mount -t 9p -o "$shared" results /results || stop "no place for results"
# Sets modules, run, plan and results: their paths on the host.
. /results/settings
mount -t 9p -o "$shared,ro,cache=loose" files /below || stop "no shared files"
mount -t ext4 /dev/vda /above || stop "no disk"
mkdir -p /above/files /above/work /above/tmp
chmod 1777 /above/tmp
mount -t overlay -o lowerdir=/below,upperdir=/above/files,workdir=/above/work over /root || stop "no overlay"
mount -t proc proc /root/proc
mount -t sysfs sys /root/sys
mount -t devtmpfs dev /root/dev
mount -t tmpfs run /root/run
ln -s /proc/self/fd /root/dev/fd
mkdir -p /root/dev/shm /root/dev/pts
mount -t tmpfs shm /root/dev/shm
mount -t devpts pts /root/dev/pts
mount -t cgroup2 cgroup /root/sys/fs/cgroup
# Not mounted over /tmp, which may have shared files.
mkdir -p /root/annulus
mount --bind /above/tmp /root/annulus
mount --bind /results "/root$results"
# The directory in which the kernel's helper looks for modules to load on demand.
mkdir -p /lib/modules
mount --bind "/below$modules" /lib/modules
echo /bin/modprobe >/proc/sys/kernel/modprobe
ifconfig lo up
# The usual limit of a login; tests of a thousand connections have both ends in one process.
ulimit -n 65536

export HOME=/annulus TMPDIR=/annulus PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
/bin/busybox chroot /root /bin/sh "$run" "$plan" "$results" || /bin/busybox echo "annulus: run.sh failed"
export PATH=/bin
stop "done"
