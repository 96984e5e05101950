#!/bin/sh
if grep -q Nairobi; then echo '{"pass": true, "score": 1}'; else echo '{"pass": false, "score": 0.25, "reasoning": "by a program"}'; fi
