CREATE TABLE `message` (
          `id` text PRIMARY KEY,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_message_session_id_session_id_fk` FOREIGN KEY (`session_id`) REFERENCES `session`(`id`) ON DELETE CASCADE
        );
INSERT INTO "message" VALUES('msg_1ded7dc35001BrJOkA6nYXTr0M','ses_e2128242effemxhhuFumAc84fM',1794740050997,1794740053109,'{"role":"user","time":{"created":1794740050997},"agent":"build","model":{"providerID":"mock","modelID":"mock-model"},"summary":{"diffs":[]}}');
INSERT INTO "message" VALUES('msg_1ded7e453001o1FJV6VWKAVgdp','ses_e2128242effemxhhuFumAc84fM',1794740053075,1794740055966,'{"parentID":"msg_1ded7dc35001BrJOkA6nYXTr0M","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/workspace","root":"/"},"cost":0.0006,"tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"modelID":"mock-model","providerID":"mock","time":{"created":1794740053075,"completed":1794740055964},"finish":"stop"}');
CREATE TABLE `part` (
          `id` text PRIMARY KEY,
          `message_id` text NOT NULL,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_part_message_id_message_id_fk` FOREIGN KEY (`message_id`) REFERENCES `message`(`id`) ON DELETE CASCADE
        );
INSERT INTO "part" VALUES('prt_1ded7dc3c00162ZoUDeJuXH8JG','msg_1ded7dc35001BrJOkA6nYXTr0M','ses_e2128242effemxhhuFumAc84fM',1794740051008,1794740051009,'{"type":"text","text":"Do it."}');
INSERT INTO "part" VALUES('prt_1ded7ef3d001fv2au8OqGEMLYY','msg_1ded7e453001o1FJV6VWKAVgdp','ses_e2128242effemxhhuFumAc84fM',1794740055869,1794740055871,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_1ded7ef45001T6onZuAqdtm1gr','msg_1ded7e453001o1FJV6VWKAVgdp','ses_e2128242effemxhhuFumAc84fM',1794740055877,1794740055889,'{"type":"text","text":"Works.","time":{"start":1794740055877,"end":1794740055885}}');
INSERT INTO "part" VALUES('prt_1ded7ef5a001n5hP3ECbTGnpOx','msg_1ded7e453001o1FJV6VWKAVgdp','ses_e2128242effemxhhuFumAc84fM',1794740055898,1794740055907,'{"reason":"stop","type":"step-finish","tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"cost":0.0006}');
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
INSERT INTO "session" VALUES('ses_e2128242effemxhhuFumAc84fM','global',NULL,NULL,'glowing-forest','/workspace','workspace','assay','1.18.33',NULL,0,0,0,NULL,NULL,0.0006,100,20,0,0,0,NULL,'[{"permission":"question","pattern":"*","action":"deny"},{"permission":"plan_enter","pattern":"*","action":"deny"},{"permission":"plan_exit","pattern":"*","action":"deny"}]','build','{"id":"mock-model","providerID":"mock","variant":"default"}',1794740050897,1794740056032,NULL,NULL);
