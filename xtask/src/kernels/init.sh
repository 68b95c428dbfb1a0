#!/bin/busybox sh
# The first process of the machine: mounts what it was given and hands over to run.sh, in the files of the machine it runs on.
# With annulus.probe on its command line it only says that it runs.
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

# Below: the files of the machine outside, read only. Above: an empty disk, which takes what is written.
shared=trans=virtio,version=9p2000.L,msize=512000
mkdir -p /results /below /above /root
mount -t 9p -o "$shared" results /results || stop "no place for results"
# Sets modules, run, plan and results: where those are on the machine outside.
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
# Not over /tmp: what is shared may lie there.
mkdir -p /root/annulus
mount --bind /above/tmp /root/annulus
mount --bind /results "/root$results"
# Where the kernel's own helper looks for modules that are wanted on demand.
mkdir -p /lib/modules
mount --bind "/below$modules" /lib/modules
echo /bin/modprobe >/proc/sys/kernel/modprobe
ifconfig lo up
# What a login has on most machines; tests of a thousand connections have both ends in one process.
ulimit -n 65536

export HOME=/annulus TMPDIR=/annulus PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
/bin/busybox chroot /root /bin/sh "$run" "$plan" "$results" || /bin/busybox echo "annulus: run.sh failed"
export PATH=/bin
stop "done"
