#!/bin/sh
# Sends the request in BODY to URL, REQUESTS times on one connection, and expects that tollgate admits some and denies some.
# Waits up to a minute for the connection.
waited=0
until statuses=$(curl -s -o /dev/null -w '%{http_code}\n' --max-time 60 -H 'Content-Type: application/json' \
    --data "$BODY" "$URL?request=[1-$REQUESTS]"); do
    waited=$((waited + 1))
    if [ "$waited" -gt 60 ]; then
        echo "no connection to $URL"
        exit 1
    fi
    sleep 1
done
admitted=$(echo "$statuses" | grep -c '^200$') || true
denied=$(echo "$statuses" | grep -c '^429$') || true
echo "$admitted admitted, $denied denied"
if [ $((admitted + denied)) -ne "$REQUESTS" ]; then
    echo "unexpected statuses: $(echo "$statuses" | grep -v -e '^200$' -e '^429$' | sort -u | tr '\n' ' ')"
    exit 1
fi
if [ "$admitted" -eq 0 ] || [ "$denied" -eq 0 ]; then
    echo "expected test.domain, test.entries and test.requests to reach a limit of the rules"
    exit 1
fi
