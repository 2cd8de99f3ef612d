#!/bin/bash
# Exit 0 if http://127.0.0.1:$HEALTH_PORT$HEALTH_PATH answers 200. With bash alone: the image has no HTTP client.
exec 3<>"/dev/tcp/127.0.0.1/$HEALTH_PORT" || exit 1
printf 'GET %s HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n' "$HEALTH_PATH" >&3
read -r -t 2 _ status _ <&3
[ "$status" = 200 ]
