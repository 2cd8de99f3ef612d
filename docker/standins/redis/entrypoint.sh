#!/bin/sh
# Options alone, or a .conf file first, mean redis-server; root steps down to the user redis.
set -e
case "${1:-}" in
  -* | *.conf) set -- redis-server "$@" ;;
esac
if [ "$1" = redis-server ] && [ "$(id -u)" = 0 ]; then
  find . ! -user redis -exec chown redis {} + 2>/dev/null || :
  exec setpriv --reuid=redis --regid=redis --clear-groups "$0" "$@"
fi
# Debian's build starts in protected mode and would turn other containers away; the public image's build does not.
if [ "$1" = redis-server ]; then
  case " $* " in
    *" --protected-mode "* | *" --sentinel "*) ;;
    *) set -- "$@" --protected-mode no ;;
  esac
fi
exec "$@"
