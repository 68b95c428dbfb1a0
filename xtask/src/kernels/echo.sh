# Starts an echo server and loads it briefly.
#   sh echo.sh ANNULUS DRIVER
# Exits with 77, which counts as skipped, if the driver cannot be used here; the output says why.
annulus=$1
driver=$2
case $driver in
uring | epoll) "$annulus" doctor --require "$driver" >/dev/null || exit 77 ;;
esac
said=$(mktemp)
"$annulus" echo --driver "$driver" --listen 127.0.0.1:0 --stats - 2>"$said" &
server=$!
trap 'kill "$server" 2>/dev/null; rm -f "$said"' EXIT
until grep -q 127.0.0.1 "$said"; do
    kill -0 "$server" || { cat "$said"; exit 1; }
    sleep 0.1
done
cat "$said"
# `auto` must choose the driver that the doctor has reported, and the output must have the reason.
if [ "$driver" = auto ]; then
    chosen=$(sed -n 's/.*"kind": *"\([a-z]*\)".*/\1/p' "$results/doctor.json")
    grep -q "($chosen: ..*)" "$said" || { echo "the doctor names $chosen"; exit 1; }
fi
address=$(grep -o '127\.0\.0\.1:[0-9]*' "$said" | head -n 1)
# A few small messages, many messages, and large ones. The last two loads need more buffers than a pool starts with.
for clients in "-c 10 -l 128" "-c 400 -l 512" "-c 50 -l 65536"; do
    echo "load $clients"
    # shellcheck disable=SC2086 # several options
    "$annulus" load "$address" $clients --duration 2 --reply-timeout 20 || exit 1
done
kill "$server"
wait "$server"
