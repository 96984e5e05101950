CREATE TABLE `message` (
          `id` text PRIMARY KEY,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_message_session_id_session_id_fk` FOREIGN KEY (`session_id`) REFERENCES `session`(`id`) ON DELETE CASCADE
        );
INSERT INTO "message" VALUES('msg_1ded82ce5001i5gckjoU3KZHaC','ses_e2127d3f9ffe3IKE8c0ULnH0FH',1794740071653,1794740073801,'{"role":"user","time":{"created":1794740071653},"agent":"build","model":{"providerID":"mock","modelID":"mock-model"},"summary":{"diffs":[]}}');
INSERT INTO "message" VALUES('msg_1ded834cf001em7P0xHWSNtNMj','ses_e2127d3f9ffe3IKE8c0ULnH0FH',1794740073679,1794740073693,'{"parentID":"msg_1ded82ce5001i5gckjoU3KZHaC","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/workspace","root":"/"},"cost":0,"tokens":{"input":0,"output":0,"reasoning":0,"cache":{"read":0,"write":0}},"modelID":"mock-model","providerID":"mock","time":{"created":1794740073679}}');
CREATE TABLE `part` (
          `id` text PRIMARY KEY,
          `message_id` text NOT NULL,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_part_message_id_message_id_fk` FOREIGN KEY (`message_id`) REFERENCES `message`(`id`) ON DELETE CASCADE
        );
INSERT INTO "part" VALUES('prt_1ded82d03001m6W661vjTsRz6J','msg_1ded82ce5001i5gckjoU3KZHaC','ses_e2127d3f9ffe3IKE8c0ULnH0FH',1794740071698,1794740071713,'{"type":"text","text":"Do it."}');
INSERT INTO "part" VALUES('prt_1ded83af9001WNAHIn6NgabFPj','msg_1ded834cf001em7P0xHWSNtNMj','ses_e2127d3f9ffe3IKE8c0ULnH0FH',1794740075257,1794740075261,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_1ded83aff001DSPWNPWtXl1d49','msg_1ded834cf001em7P0xHWSNtNMj','ses_e2127d3f9ffe3IKE8c0ULnH0FH',1794740075263,1794740075303,'{"type":"text","text":"I start.","time":{"start":1794740075263,"end":1794740075302}}');
INSERT INTO "part" VALUES('prt_1ded83b070011Sp49DINetGnrG','msg_1ded834cf001em7P0xHWSNtNMj','ses_e2127d3f9ffe3IKE8c0ULnH0FH',1794740075271,1794740075403,'{"type":"tool","tool":"bash","callID":"call_main_00_00","state":{"metadata":{"output":""},"status":"running","input":{"command":"tail -f /dev/null"},"time":{"start":1794740075291}}}');
CREATE TABLE `session` (
          `id` text PRIMARY KEY,
          `project_id` text NOT NULL,
          `workspace_id` text,
          `parent_id` text,
          `slug` text NOT NULL,
          `directory` text NOT NULL,
          `path` text,
          `title` text NOT NULL,
          `version` text NOT NULL,
          `share_url` text,
          `summary_additions` integer,
          `summary_deletions` integer,
          `summary_files` integer,
          `summary_diffs` text,
          `metadata` text,
          `cost` real DEFAULT 0 NOT NULL,
          `tokens_input` integer DEFAULT 0 NOT NULL,
          `tokens_output` integer DEFAULT 0 NOT NULL,
          `tokens_reasoning` integer DEFAULT 0 NOT NULL,
          `tokens_cache_read` integer DEFAULT 0 NOT NULL,
          `tokens_cache_write` integer DEFAULT 0 NOT NULL,
          `revert` text,
          `permission` text,
          `agent` text,
          `model` text,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `time_compacting` integer,
          `time_archived` integer,
          CONSTRAINT `fk_session_project_id_project_id_fk` FOREIGN KEY (`project_id`) REFERENCES `project`(`id`) ON DELETE CASCADE
        );
INSERT INTO "session" VALUES('ses_e2127d3f9ffe3IKE8c0ULnH0FH','global',NULL,NULL,'quick-meadow','/workspace','workspace','assay','1.18.33',NULL,0,0,0,NULL,NULL,0.0,0,0,0,0,0,NULL,'[{"permission":"question","pattern":"*","action":"deny"},{"permission":"plan_enter","pattern":"*","action":"deny"},{"permission":"plan_exit","pattern":"*","action":"deny"}]','build','{"id":"mock-model","providerID":"mock","variant":"default"}',1794740071430,1794740073774,NULL,NULL);
