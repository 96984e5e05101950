#!/bin/sh
# The agent of scripted.py, begun by a shell: a prompt of plain words is answered here, in a tenth of the time
# that Python needs to start. usage: scripted.sh PYTHON TAG [--resume SESSION] [--stdin] PROMPT
python=$1
shift
for prompt; do :; done
case " $* " in
  *" --stdin "* | *"!do "*) plain= ;;
  *) plain=1 ;;
esac
case $prompt in
  "" | *[!A-Za-z0-9\ .,:?!-]*) plain= ;;
esac
[ "$plain" ] || exec "$python" -I -S "${0%.sh}.py" "$@"
printf '{"type": "system", "session_id": "s-1"}\n'
printf '{"type": "message", "text": "%s"}\n' "$prompt"
printf '{"type": "result", "result": "%s", "usage": {"input_tokens": 10, "output_tokens": 5}, ' "$prompt"
printf '"total_cost_usd": 0.01, "session_id": "s-1"}\n'
