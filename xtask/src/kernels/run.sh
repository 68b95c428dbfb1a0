# Runs a plan, with a line "name <tab> seconds <tab> directory <tab> command" per check, and prints each outcome.
#   sh run.sh PLAN RESULTS
# Writes NAME.log for each check to RESULTS, and a line "name <tab> status <tab> seconds" in RESULTS/outcomes.
plan=$1
results=$2
export results
tab=$(printf '\t')
now() {
    cut -d. -f1 /proc/uptime
}
while IFS=$tab read -r name seconds directory command; do
    began=$(now)
    (cd "$directory" && exec timeout -k 5 "$seconds" sh -c "$command") >"$results/$name.log" 2>&1 </dev/null
    status=$?
    took=$(($(now) - began))
    printf '%s\t%s\t%s\n' "$name" "$status" "$took" >>"$results/outcomes"
    echo "annulus: $name: $([ "$status" -eq 0 ] && echo passed || echo "ended with $status") after $took s"
done <"$plan"
