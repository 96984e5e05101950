#!/usr/bin/perl -w
# A program that behaves as Claude Code does on its command line, without a model.
#
# It reads what Claude Code would read in its folder and in HOME, lists it in its start event, and answers by it: the
# word after "Magic word:" in a skill, in CLAUDE.md or in the name of a server, or of the model. Without any of them it
# answers "no idea". Each run of the tests starts it a few thousand times, and Python takes six times as long to start.

use strict;    # and nothing else: each module takes a millisecond

$| = 1;
my ($config, $model, $asks) = ("", "claude-sonnet-4-5", 0);
for my $n (0 .. $#ARGV) {
    $asks = 1 if $ARGV[$n] eq "-p";
    $config = $ARGV[$n + 1] if $ARGV[$n] eq "--mcp-config";
    $model = $ARGV[$n + 1] if $ARGV[$n] eq "--model";
}

sub setting {    # a variable by the end of its name
    my ($name) = @_;
    return $ENV{"LIKE_$name"} // "";
}

sub quoted {
    my ($text) = @_;
    $text =~ s/(["\\])/\\$1/g;
    $text =~ s/\n/\\n/g;
    return "\"$text\"";
}

sub emit {
    my ($event) = @_;
    print "{\"session_id\": \"s-1\", $event}\n";
}

sub lost {
    my ($status, $words) = @_;
    emit("\"type\": \"result\", \"subtype\": \"success\", \"is_error\": true, \"api_error_status\": $status, "
            . "\"num_turns\": 1, \"result\": \"$words\", \"usage\": {}, \"total_cost_usd\": 0");
    exit 1;
}

sub content {
    my ($path) = @_;
    open(my $file, "<", $path) or die "$path: $!";
    local $/;
    return scalar <$file>;
}

if (grep { $_ eq "--version" } @ARGV) {
    print setting("VERSION") || "2.1.325", " (Claude Code)\n";
    exit 0;
}
lost(401, "Invalid API key · Please run /login") if setting("LOGGED_OUT");

my (%skills, @texts);
for my $home (".", $ENV{HOME} // "/nowhere") {
    opendir(my $folder, "$home/.claude/skills") or next;
    for my $name (sort readdir $folder) {
        my $path = "$home/.claude/skills/$name/SKILL.md";
        next if $name =~ /^\.\.?$/ || setting("BLIND") || !-f $path;
        push @texts, $name unless exists $skills{$name};    # the later of one name counts
        $skills{$name} = content($path);
    }
}
@texts = map { $skills{$_} } @texts;
push @texts, content("CLAUDE.md") if -f "CLAUDE.md";
my @servers;
if ($config) {    # few runs have servers
    my $code = 'import json, sys; print(*json.loads(sys.argv[1])["mcpServers"], sep="\n")';
    open(my $listed, "-|", "python3", "-IS", "-c", $code, $config) or die $!;
    chomp(@servers = <$listed>);
}
push @texts, map { "Magic word: $_" } @servers;
push @texts, "Magic word: opus" if $model =~ /opus/;

my $cwd = readlink("/proc/self/cwd");
my @named = map { quoted($_) } sort keys %skills;
my $tools = join ", ", '"Bash", "Read"', map { quoted("mcp__${_}__look") } @servers;
my $connected = join ", ", map { '{"name": ' . quoted($_) . ', "status": "connected"}' } @servers;
emit("\"type\": \"system\", \"subtype\": \"init\", \"cwd\": " . quoted($cwd) . ", \"model\": " . quoted($model)
        . ", \"skills\": [" . join(", ", @named) . "], \"tools\": [$tools], \"mcp_servers\": [$connected], "
        . "\"permissionMode\": \"bypassPermissions\", \"claude_code_version\": \"2.1.325\"");
select(undef, undef, undef, setting("S")) if setting("S");
if (my $log = setting("LOG")) {
    open(my $file, ">>", $log) or die "$log: $!";
    print $file "$cwd\n";
}

my @words = map { /Magic word: \s*(\S+)/g } @texts;
# Of some questions, by their last word, something else becomes of it if there is a magic word.
my $prompt = $asks && !-t STDIN ? do { local $/; <STDIN> // "" } : "";
my $asked = (split " ", "$prompt $ARGV[-1]")[-1];

sub is_among {
    my ($name) = @_;
    return @words && grep { $_ eq $asked } split " ", setting($name);
}

my $once = setting("LOG") . ".$asked";    # the first attempt leaves a file
if (is_among("LOST") || (is_among("LOST_ONCE") && !-e $once)) {
    open(my $file, ">", $once) or die "$once: $!";
    lost(529, "API Error: 529 overloaded, retry in 1 ms");    # else all trials wait for seconds
}
my $answer = join(", ", @words) || "no idea";
$answer = "no idea" if is_among("FAILS");
$answer = "crash" if is_among("CRASHES");
my @uses = map { ["Skill", "{\"skill\": $_}"] } @named;
push @uses, map { ["mcp__${_}__look", "{}"] } @servers;
@uses = () if setting("UNUSED");
my $message = "\"type\": \"assistant\", \"message\": {\"role\": \"assistant\", \"model\": " . quoted($model);
for my $n (0 .. $#uses) {
    my ($tool, $given) = @{$uses[$n]};
    emit("$message, \"content\": [{\"type\": \"tool_use\", \"id\": \"call-$n\", \"name\": " . quoted($tool)
            . ", \"input\": $given}]}");
    emit("\"type\": \"user\", \"message\": {\"role\": \"user\", \"content\": [{\"type\": \"tool_result\", "
            . "\"tool_use_id\": \"call-$n\", \"content\": \"Done.\"}]}");
}
my $said = quoted($answer);
emit("$message, \"content\": [{\"type\": \"text\", \"text\": $said}]}");
system("rm", "-rf", ".claude") if setting("DELETES");
# A thousand tokens of this model cost a cent and a half.
my $tokens = setting("TOKENS") || 5;
emit("\"type\": \"result\", \"subtype\": \"success\", \"is_error\": false, \"num_turns\": 1, \"result\": $said, "
        . "\"usage\": {\"input_tokens\": 0, \"output_tokens\": $tokens}");
