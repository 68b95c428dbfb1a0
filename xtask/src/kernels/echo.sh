# Serves echo and loads it for a moment.
#   sh echo.sh ANNULUS DRIVER [OPTION...]
# Exits 77, which is neither passed nor failed, if the driver is not to be had here; what it says tells why.
annulus=$1
driver=$2
shift 2
case $driver in
uring | epoll) "$annulus" doctor --require "$driver" >/dev/null || exit 77 ;;
esac
said=$(mktemp)
"$annulus" echo --driver "$driver" --listen 127.0.0.1:0 --stats - "$@" 2>"$said" &
server=$!
until grep -q 127.0.0.1 "$said"; do
    kill -0 "$server" || { cat "$said"; exit 1; }
    sleep 0.1
done
cat "$said"
# Without a demand it is the one that the doctor tells, who was asked before; and the reason is told.
if [ "$driver" = auto ]; then
    chosen=$(sed -n 's/.*"kind": *"\([a-z]*\)".*/\1/p' "$results/doctor.json")
    grep -q "($chosen: ..*)" "$said" || { echo "the doctor tells of $chosen"; exit 1; }
fi
address=$(grep -o '127\.0\.0\.1:[0-9]*' "$said" | head -n 1)
# Few and small, many, and large ones: the last two need more buffers than a pool begins with.
for clients in "-c 10 -l 128" "-c 400 -l 512" "-c 50 -l 65536"; do
    echo "load $clients"
    # shellcheck disable=SC2086 # several options
    "$annulus" load -a "$address" $clients -t 2 --reply-timeout 20 --connect-timeout 20 || exit 1
done
kill "$server"
wait "$server"
